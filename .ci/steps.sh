# What .ci/run and .ci/nightly share: named steps with their durations, system packages, other Pythons.

summary=$(mktemp)

# Runs a command, prints how long it took, and keeps the result for `covered`. Ends the script on a failure, unless
# `keep_going` is set.
step() {
    local begin=$SECONDS result=passed
    echo "--- $*"
    "$@" || result=FAILED
    echo "--- $*: $((SECONDS - begin)) s"
    printf '%-7s %5d s  %s\n' "$result" "$((SECONDS - begin))" "$*" >>"$summary"
    [ "$result" = passed ] || [ -n "${keep_going:-}" ] || exit 1
}

# Ends the script with a row for each step.
covered() {
    echo "--- In all $SECONDS s:"
    cat "$summary"
    ! grep -q ^FAILED "$summary"
}

# The other Pythons, the newest first, on the path or in pyenv.
other_pythons() {
    local version python
    for version in 3.14 3.13 3.12; do
        for python in "$(command -v "python$version")" "${HOME:-}"/.pyenv/versions/"$version".*/bin/python; do
            if [ -x "$python" ] && "$python" -c "import sys; sys.exit(sys.version_info[:2] != (${version/./, }))" 2>/dev/null; then
                echo "$python"
                break
            fi
        done
    done
}

# The folder of another Python's virtual environment.
environment_of() {
    "$1" -c 'import sys; print(".venv-%d.%d" % sys.version_info[:2])'
}

# Installs a system package if that is allowed; without it, its tests are skipped with a reason.
provide() {
    local program=$1
    shift
    if ! command -v "$program" >/dev/null && command -v apt-get >/dev/null; then
        local become
        become=$([ "$(id -u)" = 0 ] || echo "sudo -n")
        $become apt-get install -qq -y "$@" >/dev/null 2>&1 ||
            { $become apt-get update -qq && $become apt-get install -qq -y "$@" >/dev/null; } ||
            echo "$* could not be installed: the tests that need it will be skipped"
    fi
}

provide_programs() {
    provide chromium chromium
    provide chromedriver chromium-driver
    provide rsvg-convert librsvg2-bin # a second program that draws the pictures
    provide npm nodejs npm
}

# The tests of torch with the oldest version that is supported; `provide_extras` has the newest.
test_oldest_torch() {
    local python=.venv-oldest-torch/bin/python
    .venv/bin/python -m venv .venv-oldest-torch
    $python -m pip install --quiet --disable-pip-version-check --editable ".[test,torch]" "torch==2.6.*"
    $python -m pytest -p no:cacheprovider -m "not slow" tests/engine/test_torch.py tests/engine/test_replay_on_torch.py \
        tests/engine/test_pipelining.py tests/profiles/test_recording.py
}

# For some Pythons and platforms there is no wheel of one of them; without it, the tests that need it are skipped.
provide_extras() {
    .venv/bin/python -m pip install --quiet --disable-pip-version-check --editable ".[proof,torch,jax,marimo]" ||
        for extra in proof torch jax marimo; do
            .venv/bin/python -m pip install --quiet --disable-pip-version-check --editable ".[$extra]" ||
                echo "$extra could not be installed: its tests will be skipped"
        done
}
