#!/usr/bin/env bash
# The steps of the GitHub Action in ../action.yml, which gives them its inputs as variables: `deploy/action.sh STEP`, in
# the repository of the components.
set -euo pipefail

MAX_COMMENT=65000 # characters; GitHub accepts 65 536

components() {
    local path
    # the last line may have no end
    while read -r path || [ -n "$path" ]; do
        case $path in
        '') ;;
        -*) echo "./$path" ;;
        *) echo "$path" ;;
        esac
    done <<<"$PATHS"
}

note() { # TEXT
    echo "$1"
    printf '%s\n\n' "$1" >>"$REPORTS/report.md"
}

report_error() { echo "::error title=podwright::$1"; }

# Runs a command, and adds its output to the report. The output is indented, because a fence could end in it.
record() { # TITLE COMMAND...
    local title=$1 code=0 output result=passed
    shift
    output=$("$@" 2>&1) || code=$?
    if [ "$code" != 0 ]; then result=failed; fi
    printf '%s: %s\n%s\n' "$title" "$result" "$output"
    {
        printf '### %s: %s\n\n' "$title" "$result"
        sed 's/^/    /' <<<"${output:-nothing}"
        echo
    } >>"$REPORTS/report.md"
    return "$code"
}

install() {
    local root lock python path wanted reports
    root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
    lock=$root/deploy/image/requirements-$FLAVOUR.lock
    if [ ! -f "$lock" ]; then
        report_error "the flavour '$FLAVOUR' is neither slim nor full"
        return 1
    fi
    if [ -z "$(components)" ]; then
        report_error "no component folder is given in 'paths'"
        return 1
    fi
    python=$RUNNER_TEMP/podwright/venv/bin/python
    "$root/deploy/setup.sh" venv --quiet --allow-existing --python "$PYTHON" "$RUNNER_TEMP/podwright/venv"
    "$root/deploy/setup.sh" pip sync --quiet --python "$python" --require-hashes "$lock"
    "$root/deploy/setup.sh" pip install --quiet --python "$python" --no-deps --build-constraints "$root/requirements-uv.lock" \
        "$root/library" "$root/service"
    while read -r path; do
        for wanted in requirements.lock requirements.txt; do
            if [ -f "$path/$wanted" ]; then
                "$root/deploy/setup.sh" pip install --quiet --python "$python" --constraints "$lock" \
                    --requirements "$PWD/$path/$wanted"
                break
            fi
        done
    done < <(components)
    # only the command: the Python of later steps stays what it was
    mkdir -p "$RUNNER_TEMP/podwright/bin"
    ln -sf ../venv/bin/podwright "$RUNNER_TEMP/podwright/bin/podwright"
    echo "$RUNNER_TEMP/podwright/bin" >>"$GITHUB_PATH"
    reports=$(mktemp -d "$RUNNER_TEMP/podwright/run.XXXXXX")/reports
    mkdir "$reports"
    touch "$reports/report.md"
    echo "reports=$reports" >>"$GITHUB_OUTPUT"
}

validate() {
    local path failed=0 options=()
    if [ -n "$MODEL" ]; then options=(--model "$MODEL"); fi
    while read -r path; do
        record "validate \`$path\`" podwright validate "$path" "${options[@]}" || failed=1
        record "sync --check \`$path\`" podwright sync "$path" --check || failed=1
    done < <(components)
    return "$failed"
}

# Puts the files of the base beside the reports, whatever depth the checkout has.
extract_base() {
    git fetch --quiet --no-tags --depth=1 -- origin "$BASE" || {
        report_error "cannot fetch the base '$BASE'"
        return 1
    }
    mkdir "$REPORTS/../base"
    git archive FETCH_HEAD | tar -x -C "$REPORTS/../base"
}

diff_with_base() {
    local path failed=0 options=()
    if [ -z "$BASE" ]; then
        note "There is no base to compare with."
        return
    fi
    extract_base
    if [ "$FAIL_ON_BREAKING" = true ]; then options=(--exit-code); fi
    while read -r path; do
        if [ ! -e "$REPORTS/../base/$path" ]; then
            note "\`$path\` is new."
            continue
        fi
        # without the option, a blueprint of the base that cannot be read is no reason to fail
        record "diff \`$path\`" podwright diff "$REPORTS/../base/$path" "$path" "${options[@]}" || failed=${#options[@]}
    done < <(components)
    return "$failed"
}

evaluate() {
    local path failed=0
    while read -r path; do
        if [ ! -d "$path/evals" ]; then
            note "\`$path\` has no evals/, so it is not evaluated."
            continue
        fi
        evaluate_component "$path" || failed=1
    done < <(components)
    return "$failed"
}

evaluate_component() { # FOLDER
    local path=$1 files code=0 options=()
    files=$(mktemp -d "$REPORTS/$(basename -- "$(realpath -- "$path")").XXXXXX")
    if [ "$AGAINST" != base ]; then
        if [ -n "$AGAINST" ]; then options+=(--against "$AGAINST"); fi
    elif [ -e "$REPORTS/../base/$path" ]; then
        options+=(--against "$REPORTS/../base/$path")
    fi
    if [ "$STRICT" = true ]; then options+=(--strict); fi
    # nobody is there to be asked
    podwright eval "$path" --budget "$BUDGET" --yes "${options[@]}" --json "$files/report.json" \
        --junit "$files/junit.xml" --markdown "$files/report.md" </dev/null || code=$?
    if [ -s "$files/report.md" ]; then
        { cat "$files/report.md" && echo; } >>"$REPORTS/report.md"
    else
        note "\`$path\`: \`podwright eval\` has written no report."
    fi
    case $code in
    0) ;;
    1) report_error "a gate of the evaluation of $path fails, or is undecided with strict" ;;
    4) report_error "the evaluation of $path is incomplete: a provider failed, or the budget is used up" ;;
    *) report_error "podwright eval $path ended with $code" ;;
    esac
    return "$code"
}

diff_with_release() {
    local paths options=()
    mapfile -t paths < <(components)
    if [ "$FAIL_ON_BREAKING" = true ]; then options=(--exit-code); fi
    record "deploy diff \`$VALUES\`" podwright deploy diff "$VALUES" "${paths[@]}" "${options[@]}"
}

write_summary() {
    { printf '## Podwright\n\n' && cat "$REPORTS/report.md"; } >>"$GITHUB_STEP_SUMMARY"
}

# One comment of each job, which later runs replace.
write_comment() {
    local marker text
    export LC_ALL=C.UTF-8 # the length of a text is that in characters
    marker="<!-- podwright:$(sha256sum <<<"$GITHUB_WORKFLOW/$GITHUB_JOB" | cut -c 1-16) -->"
    text=$(printf '%s\n## Podwright\n\n%s' "$marker" "$(<"$REPORTS/report.md")")
    if [ "${#text}" -gt "$MAX_COMMENT" ]; then
        text="${text:0:MAX_COMMENT}"$'\n\nThe rest is in the summary of the run.'
    fi
    printf '%s\n' "$text" >"$REPORTS/comment.md"
    # a pull request from a fork has no token with the permission, which is no reason to fail
    send_comment "$marker" "$REPORTS/comment.md" \
        || echo "::warning title=podwright::cannot write the comment; the token needs the permission pull-requests: write"
}

send_comment() { # MARKER FILE
    local comments=repos/$GITHUB_REPOSITORY/issues id
    # of a bot: anybody can write a comment that begins with the marker
    id=$(gh api "$comments/$PULL_REQUEST/comments" --paginate \
        --jq ".[] | select(.user.type == \"Bot\" and (.body | startswith(\"$1\"))) | .id" | tail -n 1) || return 1
    if [ -n "$id" ]; then
        gh api "$comments/comments/$id" --method PATCH --field "body=@$2" --silent
    else
        gh api "$comments/$PULL_REQUEST/comments" --method POST --field "body=@$2" --silent
    fi
}

case ${1-} in
install | validate | evaluate) "$1" ;;
diff) diff_with_base ;;
release) diff_with_release ;;
summary) write_summary ;;
comment) write_comment ;;
*)
    echo "action: unknown step '${1-}'" >&2
    exit 2
    ;;
esac
