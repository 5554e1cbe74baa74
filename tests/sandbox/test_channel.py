"""The grader's ends of a server's pipes: an answer, an end, a limit of bytes, and a server that does not answer."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack
from typing import IO, NamedTuple

import pytest

from puzzles.sandbox import protocol
from puzzles.sandbox.protocol import Channel

pytestmark = pytest.mark.skipif(os.name != "posix", reason="servers are forked")

LONGEST = 1 << 20
BIG = {"text": "x" * (1 << 20)}
"""More than a pipe holds."""


class Ends(NamedTuple):
    """A channel, and the server's ends of its pipes."""

    channel: Channel
    requests: IO[bytes]
    answers: IO[bytes]


@pytest.fixture
def ends() -> Iterator[Ends]:
    with ExitStack() as stack:
        requests, sending = (stack.enter_context(os.fdopen(fd, mode)) for fd, mode in zip(os.pipe(), ("rb", "wb")))
        receiving, answers = (stack.enter_context(os.fdopen(fd, mode)) for fd, mode in zip(os.pipe(), ("rb", "wb")))
        yield Ends(Channel(sending, receiving), requests, answers)


def test_all_messages_are_sent_and_the_answer_is_read(ends: Ends) -> None:
    protocol.send(ends.answers, {"ended": "exit"})
    assert ends.channel.exchange([{"one": 1}, {"two": "\u00fc"}], 10, LONGEST) == {"ended": "exit"}
    assert [protocol.receive(ends.requests) for _ in range(2)] == [{"one": 1}, {"two": "\u00fc"}]


@pytest.mark.parametrize("sent", [b"", b"0000", b"00000010{"])
def test_a_server_that_ends_gives_no_answer(ends: Ends, sent: bytes) -> None:
    ends.answers.write(sent)
    ends.answers.close()
    assert ends.channel.exchange([{}], 10, LONGEST) is None


def test_a_server_that_does_not_answer_is_not_waited_for_longer(ends: Ends) -> None:
    with pytest.raises(TimeoutError):
        ends.channel.exchange([{}], 0.001, LONGEST)
    ends.answers.write(b"00000010{")
    ends.answers.flush()
    with pytest.raises(TimeoutError):
        ends.channel.exchange([{}], 0.001, LONGEST)


def test_a_server_that_does_not_read_is_not_waited_for_either(ends: Ends) -> None:
    with pytest.raises(TimeoutError):
        ends.channel.exchange([BIG], 0.001, LONGEST)


def test_what_is_no_message_or_too_long_is_refused(ends: Ends) -> None:
    protocol.send(ends.answers, {"text": "xxx"})
    with pytest.raises(ValueError, match="too long"):
        ends.channel.exchange([], 10, 8)


@pytest.mark.parametrize("sent", [b"-0000001", b"no digit", b"00000002[]", b"00000002{]"])
def test_junk_is_refused(ends: Ends, sent: bytes) -> None:
    ends.answers.write(sent)
    ends.answers.flush()
    with pytest.raises(ValueError, match=r"too long|invalid literal|an object|Expecting"):
        ends.channel.exchange([], 10, LONGEST)


def test_nobody_to_read_is_an_error(ends: Ends) -> None:
    ends.requests.close()
    with pytest.raises(BrokenPipeError):
        ends.channel.exchange([{}], 10, LONGEST)
