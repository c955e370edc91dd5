set -euo pipefail

# What serves until it is stopped gets a terminal of its own, as a reader would give it one, and is stopped at the end.
servers=()
in_a_terminal_of_its_own() {
    local fifo="terminal-${#servers[@]}-$$" line
    mkfifo "$fifo"
    (exec "$@") >"$fifo" 2>&1 &
    servers+=("$!")
    exec {output}<"$fifo"
    while read -r line <&"$output"; do
        printf '%s\n' "$line" >&2
        if [[ $line == *'listening on'* ]]; then
            cat <&"$output" >&2 &
            return 0
        fi
    done
    return 1
}

the_end() {
    local code=$? pid
    trap - EXIT
    for pid in "${servers[@]}"; do kill "$pid" 2>/dev/null || true; done
    for pid in "${servers[@]}"; do wait "$pid" || code=$?; done
    exit "$code"
}
trap the_end EXIT

# A question that a page asks has an answer with rows. A server that was started a moment ago, and does not know the metric
# yet, is asked again: who types is slower than that.
telem() {
    if [[ ${1-} != sql ]]; then
        command telem "$@"
        return
    fi
    local answer lines=5 until=$((SECONDS + 30))
    case " $* " in
    *' -o '* | *' --output '*)
        command telem "$@"
        return
        ;;
    *' --format json '* | *' --format ndjson '*) lines=1 ;;
    *' --format csv '*) lines=2 ;;
    esac
    while true; do
        local code=0
        answer=$(command telem "$@") || code=$?
        if [[ $code -eq 0 && $(wc -l <<<"$answer") -ge $lines && $answer != '[]' ]]; then
            printf '%s\n' "$answer"
            return 0
        fi
        if [[ ${#servers[@]} -eq 0 || $SECONDS -ge $until ]]; then
            printf 'no rows:\n%s\n' "$answer" >&2
            return $((code == 0 ? 3 : code))
        fi
        sleep 0.1
    done
}
