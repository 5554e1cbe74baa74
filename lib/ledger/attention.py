"""States what causal attention demands and yields on shares of the tokens: share q sees the keys of shares up to q.

A layer has one weight, which makes keys and values; the input is the queries. The output of some queries is a sum over
blocks of keys, and so is the gradient that comes back through them (Liu et al. 2023, section 3). Here, part k of such a
sum is the one of the keys of share k. The input's gradient has one more part, which comes back through its own keys.
A gradient of keys has a part for each share of queries that sees them.
"""

from collections.abc import Sequence
from fractions import Fraction
from math import ceil

from lib.errors import RuleError, Sentences
from lib.ledger import algebra
from lib.ledger.algebra import Who, batches_text, set_text
from lib.ledger.setting import Game
from lib.ledger.values import (
    ALIKE_PARTS,
    ONE_LABEL,
    Activation,
    ActivationGrad,
    Batched,
    KeyValue,
    KeyValueGrad,
    V,
    Value,
    Weight,
    WeightGrad,
    refuse_kinds,
    require_alike,
    require_kind,
)

from .layers import require_input, require_layers, require_usable, same_model

Shares = frozenset[int]


def keys(game: Game, layer: int, inp: Value, weight: Value) -> KeyValue:
    """The keys and values of some tokens."""
    if type(inp) is not Activation or type(weight) is not Weight:
        refuse_kinds("keys(layer, inp, weight)", (inp, Activation), (weight, Weight))
    _of_layer(game, layer, inp)
    require_usable(game, layer, weight, inp)
    _together(inp, "keys")
    same_model(game, inp, weight)
    return _made(game, KeyValue, inp, layer, shares_of(game, inp))


def attend(game: Game, layer: int, inp: Value, *given: Value) -> Activation:
    """The next layer's input, as far as it comes from some keys; after them perhaps another part, to be added to."""
    into = given[-1] if given and type(given[-1]) is Activation else None
    blocks = given if into is None else given[:-1]
    queries, seen = _sees(game, layer, inp, blocks)
    inp, of = require_kind(inp, Activation, "inp"), max(queries) + 1
    if into is not None:
        _require_into(game, layer, inp, into, queries)
        if twice := seen & into.parts:
            raise RuleError(SAYS("keys in both", keys=set_text(twice)))
        seen |= into.parts
    return _made(game, Activation, inp, layer + 1, queries, seen, of)


def attend_backward(game: Game, layer: int, inp: Value, *given: Value) -> tuple[Value, ...]:
    """The gradient of the queries through some keys, and of each block of keys from these queries."""
    *blocks, grad = given or (inp,)
    queries, seen = _sees(game, layer, inp, blocks)
    inp, grad = require_kind(inp, Activation, "inp"), require_kind(grad, ActivationGrad, "grad")
    if grad.layer != layer:
        raise RuleError(SAYS("other output gradient", grad=grad, layer=layer))
    _require_same(game, inp, grad, queries)
    _require_all_keys(grad)
    same_model(game, inp, grad)
    grads: list[Value] = [_made(game, ActivationGrad, inp, layer - 1, queries, seen, max(queries) + 2)]
    for block in blocks:
        shares = shares_of(game, require_kind(block, KeyValue, "each block of keys"))
        start = min(shares)
        sources = frozenset(q - start for q in queries if q >= start)
        grads.append(_made(game, KeyValueGrad, inp, layer, shares, sources, game.shares - start))
    return tuple(grads)


def keys_backward(
    game: Game, layer: int, inp: Value, grad: Value, weight: Value, through: Value
) -> tuple[WeightGrad, ActivationGrad]:
    """The weight gradient of some tokens, and the gradient of the layer's input, from the gradients of their keys and
    of their queries."""
    if type(inp) is not Activation or type(grad) is not KeyValueGrad:
        refuse_kinds("keys_backward(layer, inp, grad_keys)", (inp, Activation), (grad, KeyValueGrad))
    if type(weight) is not Weight or type(through) is not ActivationGrad:
        refuse_kinds("keys_backward(..., weight, grad)", (weight, Weight), (through, ActivationGrad))
    _of_layer(game, layer, inp)
    require_usable(game, layer, weight, inp)
    shares = shares_of(game, inp)
    for value, there in ((grad, layer), (through, layer - 1)):
        if value.layer != there:
            raise RuleError(SAYS("not from attend_backward", value=value, layer=layer))
        _require_same(game, inp, value, shares)
        _together(value, "keys_backward")
    if len(grad.parts) < grad.of:
        start, users = min(shares), range(min(shares), game.shares)
        missing = {q for q in users if q - start not in grad.parts}
        raise RuleError(
            SAYS("queries missing", keys=set_text(shares), users=set_text(users), missing=set_text(missing))
        )
    if len(through.parts) < through.of - 1:
        missing = set(range(through.of - 1)) - through.parts
        raise RuleError(SAYS("keys missing", keys=set_text(through.parts), missing=set_text(missing)))
    if through.of == 1:
        raise RuleError(SAYS("not through these keys", through=through, layer=layer))
    same_model(game, inp, grad, weight, through)
    numbers, count = in_shares(game, inp.batches, shares), game.batches * game.shares
    weight_grad = WeightGrad.made(layer, inp.layers, numbers, count, step=inp.step, shares=game.shares)
    return weight_grad, _made(game, ActivationGrad, inp, layer - 1, shares)


def ticks(game: Game, operation: str, used: Sequence[Value]) -> int:
    """The ticks of one of these operations: of `keys` for the share of the tokens, of `attend` for the share of the
    pairs of a query and a key that it does not mask, which grow with the square of a microbatch's length. Rounded up
    once for each microbatch; backward takes twice that."""
    costs, inp = game.setting.costs, used[0]
    costs.require_priced(operation)
    assert isinstance(inp, Batched)
    queries, total = shares_of(game, inp), game.shares
    share = Fraction(len(queries), total)
    if operation.startswith("attend"):
        attended = frozenset().union(*[shares_of(game, value) for value in used if type(value) is KeyValue])
        pairs = sum(2 * (k < q) + (k == q) for q in queries for k in attended)
        share = Fraction(pairs, total**2) / (inp.heads[1] if inp.heads else 1)
    price, power = costs.ticks[operation.removesuffix("_backward")] * share, 1 + operation.startswith("attend")
    lengths = [costs.unequal.length(batch) if costs.unequal else 1 for batch in inp.batches]
    return sum(ceil(price * length**power) for length in lengths) * (1 + operation.endswith("_backward"))


# --- From shares of tokens to heads, and back (Jacobs et al. 2023) ---


def to_heads(values: Sequence[Value], who: Who) -> list[Value]:
    """The i-th of n members gets the i-th part of the heads, of the tokens of all, of which it has the i-th part. They
    may be a part of all tokens, as in a ring of such groups (Fang and Zhao 2024)."""
    first, n = _exchanged(values, who, "heads"), len(values)
    tokens = sorted(frozenset[int]().union(*[value.shards for value in values]))  # type: ignore[attr-defined]
    for i, (value, own) in enumerate(zip(values, _parts(tokens, n))):
        assert isinstance(value, Batched)
        if value.heads is not None or value.shards != own:
            raise RuleError(SAYS("other share", who=who(i), value=value, share=i, n=n))
    return [first.copied(shards=frozenset(tokens), heads=(i, n)) for i in range(n)]


def to_tokens(values: Sequence[Value], who: Who) -> list[Value]:
    """The way back: the i-th of n members gets the i-th part of the tokens, with all heads."""
    first, n = _exchanged(values, who, "tokens"), len(values)
    for i, value in enumerate(values):
        assert isinstance(value, Batched)
        if value.heads != (i, n) or value.shards != first.shards or len(first.shards) % n:
            raise RuleError(SAYS("other heads", who=who(i), value=value, heads=i, n=n))
    slices: list[Value] = []
    for tokens in _parts(sorted(first.shards), n):
        parts, of = first.parts, first.of
        if of > 1:  # a gradient through all keys: of these tokens through all that they see
            parts, of = frozenset(range(max(tokens) + 1)), max(tokens) + 2
        slices.append(first.copied(shards=tokens, parts=parts, of=of, heads=None))
    return slices


def _parts(tokens: Sequence[int], n: int) -> list[Shares]:
    """Tokens in n equal parts, in their order; as far as they can be divided."""
    size = -(-len(tokens) // n)
    return [frozenset(tokens[i * size : (i + 1) * size]) for i in range(n)]


def scatter_keys(values: Sequence[Value], who: Who) -> list[Value]:
    """The sum of gradients of all keys, from all queries; each member keeps the keys of the tokens whose queries it
    brought."""
    first = values[0]
    assert isinstance(first, KeyValueGrad)
    for i, value in enumerate(values):
        require_kind(value, KeyValueGrad, "what all ranks reduce")
        require_alike(first, value, ALIKE_PARTS, who, i, "sum")
    parts = [value.parts for value in values]  # type: ignore[attr-defined]  # all are of one kind by now
    union = algebra.disjoint_union(parts, "the gradient from the queries of share", who, "contribute each once")
    if len(union) < first.of or len(first.shards) < first.total:
        raise RuleError(SAYS("partial key gradients", who=who(0), first=first))
    return [first.copied(shards=queries, parts=algebra.WHOLE, of=1) for queries in parts]


# --- What the values must be ---


def shares_of(game: Game, value: Batched) -> Shares:
    """The tokens of a value, as shares of the game."""
    if value.total == game.shares:
        return value.shards
    ratio, left = divmod(game.shares, value.total)
    if left:
        raise RuleError(SAYS("not in shares", value=value, shares=game.shares))
    return frozenset(share * ratio + k for share in value.shards for k in range(ratio))


def in_shares(game: Game, batches: Shares, shares: Shares) -> Shares:
    """Shares of some microbatches, numbered through all microbatches."""
    return frozenset(batch * game.shares + share for batch in batches for share in shares)


def _of_layer(game: Game, layer: int, inp: Activation) -> None:
    require_layers(game, "this call", "attention")
    algebra.number(layer, game.layers, "layer")
    require_input(layer, inp)
    _require_all_keys(inp)


def _require_all_keys(value: Activation | ActivationGrad) -> None:
    """Nothing is missing of a sum over keys."""
    if len(value.parts) < value.of:
        if isinstance(value, ActivationGrad):
            raise RuleError(SAYS("gradient not yet complete", value=value))
        raise RuleError(SAYS("keys not attended", tokens=set_text(value.shards), keys=set_text(value.parts)))


def _together(value: Batched, call: str) -> None:
    if value.heads is not None:
        i, n = value.heads
        raise RuleError(SAYS("heads to attention", heads=i, n=n, call=call))


def _require_same(game: Game, inp: Activation, value: Batched, tokens: Shares | None = None) -> None:
    """A value belongs to the queries: the same batches, step and heads; perhaps the same tokens."""
    if (value.batches, value.step, value.heads) != (inp.batches, inp.step, inp.heads):
        raise RuleError(SAYS("values do not match", value=value, inp=inp))
    if tokens is not None and shares_of(game, value) != tokens:
        raise RuleError(
            SAYS("other tokens", tokens=set_text(tokens), value=value, others=set_text(shares_of(game, value)))
        )


def _sees(game: Game, layer: int, inp: Value, blocks: Sequence[Value]) -> tuple[Shares, Shares]:
    """The shares of the queries, and the shares of the keys that one of them sees."""
    inp = require_kind(inp, Activation, "inp")
    _of_layer(game, layer, inp)
    if not blocks:
        raise RuleError(SAYS("no keys"))
    queries, there = shares_of(game, inp), frozenset[int]()
    for block in blocks:
        block = require_kind(block, KeyValue, "each block of keys")
        if (block.layer, block.batches, block.step) != (layer, inp.batches, inp.step):
            batches, queried = batches_text(block), batches_text(inp)
            why = SAYS(
                "keys of another layer",
                layer=block.layer,
                batches=batches,
                queries_layer=layer,
                queries_batches=queried,
            )
            raise RuleError(why)
        _require_same(game, inp, block)
        shares = shares_of(game, block)
        if twice := shares & there:
            raise RuleError(SAYS("keys passed twice", keys=set_text(twice)))
        if min(shares) > max(queries):
            raise RuleError(SAYS("keys come later", tokens=set_text(queries), keys=set_text(shares)))
        there |= shares
    same_model(game, inp, *blocks)
    return queries, frozenset(k for k in there if k <= max(queries))


def _require_into(game: Game, layer: int, inp: Activation, into: Activation, queries: Shares) -> None:
    if into.layer != layer + 1:
        raise RuleError(SAYS("not from attend", into=into, layer=layer))
    if into.of == 1:
        raise RuleError(SAYS("complete attention"))
    _require_same(game, inp, into, queries)


def _made(
    game: Game, kind: type[V], inp: Activation, layer: int, shares: Shares, parts: Shares = algebra.WHOLE, of: int = 1
) -> V:
    """A value of some tokens, of the same microbatches and heads as the queries. All parts of a sum are the whole."""
    if len(parts) == of:
        parts, of = algebra.WHOLE, 1
    shards, total = (shares, game.shares) if game.shares > 1 else (algebra.WHOLE, 1)
    return inp.to(kind, layer, parts=parts, of=of, shards=shards, total=total, heads=inp.heads)


def exchangeable(value: Value, name: str) -> None:
    """Refuses what cannot go from tokens to heads or back."""
    if not isinstance(value, Batched):
        raise RuleError(SAYS("not of attention", name=name, value=value))


def _exchanged(values: Sequence[Value], who: Who, name: str) -> Batched:
    first = values[0]
    assert isinstance(first, Batched)
    alike = [label for label in ONE_LABEL if label != "heads"]
    for i, value in enumerate(values):
        require_kind(value, type(first), f"what all ranks contribute to {name}")
        require_alike(first, value, (*alike, "batches", "total"), who, i, "exchange")
        assert isinstance(value, Batched)
        halfway = isinstance(value, ActivationGrad) and len(value.parts) == value.of - 1
        if value.of > 1 and not (halfway and name == "tokens"):
            raise RuleError(SAYS("partial attention exchanged", who=who(i), value=value))
    return first


SAYS = Sentences(
    {
        "keys in both": "both values already include the keys of {keys}; attend to each block of keys once",
        "other output gradient": "this is the {grad}; pass the gradient of the output of layer {layer}",
        "not from attend_backward": "this is the {value}; keys_backward({layer}, ...) needs what attend_backward({layer}) made",
        "queries missing": "the keys of shares {keys} were read by the queries of shares {users}; run backward for shares {missing} first",
        "keys missing": "this gradient has come through the keys of {keys} only; the keys of {missing} are missing",
        "not through these keys": "this is the {through}; pass the gradient that attend_backward({layer}, ...) returned",
        "other share": "{who} contributes the {value}; its part is share {share} of {n} of the tokens, with all heads",
        "other heads": "{who} contributes the {value}; its part is heads {heads} of {n}, with all their tokens",
        "partial key gradients": "{who} contributes the {first}; contribute the gradients of all keys, summed over all queries",
        "not in shares": "this is the {value}; in this game a microbatch is {shares} shares of tokens",
        "gradient not yet complete": "this is the {value}, only through the keys of others; keys_backward completes it",
        "keys not attended": "these tokens {tokens} have seen the keys of {keys} only; attend to the others first",
        "heads to attention": "these are heads {{{heads}}} of {n}; exchange heads for tokens first, then call {call}",
        "values do not match": "this is the {value}, and the {inp}; pass values of the same microbatches, step and heads",
        "other tokens": "the activation has the tokens {tokens}, and the {value} has {others}; pass values of the same tokens",
        "no keys": "no keys were given; pass a list of what keys(...) returned",
        "keys of another layer": "these keys are of layer {layer} and {batches}; the queries are of layer {queries_layer} and {queries_batches}",
        "keys passed twice": "the keys of {keys} were passed twice; pass each block once",
        "keys come later": "the tokens {tokens} attend to none of {keys}, which come later",
        "not from attend": "into is the {into}; pass what attend({layer}, ...) returned for the same tokens",
        "complete attention": "this activation is complete; it includes all keys",
        "not of attention": "{name} takes an activation, keys and values, or a gradient of these; got the {value}",
        "partial attention exchanged": "{who} contributes the {value}; only what is summed over all keys can be exchanged",
    }
)
