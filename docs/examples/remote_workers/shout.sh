#!/usr/bin/env bash
# Runs the step "shout". Needs curl, jq, and two variables: HOLDFAST_SERVER=https://host and HOLDFAST_KEY.
set -uo pipefail
api() { # api METHOD PATH BODY [options of curl]: prints the answer; a request without one is repeated as it is
  local reply
  until reply=$(curl -sS --max-time 70 -w '%{http_code}' -X "$1" "$HOLDFAST_SERVER/v1/namespaces/default$2" -d "$3" "${@:4}" \
    -H "Authorization: Bearer $HOLDFAST_KEY" -H "Content-Type: application/json") && [[ $reply == *}[1-4]?? ]]; do sleep 1; done
  printf '%s' "${reply%???}"
}
shout() { jq -ce '{output: (.input.text | ascii_upcase)}'; } # the task in, {"output": ...} out
register() { worker=$(api POST /workers '{"name":"bash","steps":["shout"],"queues":["tools"]}' | jq -er .worker); }
until register; do sleep 1; done
trap 'api DELETE "/workers/$worker" "" >/dev/null' EXIT
for ((n = 1; ; n++)); do
  api POST "/workers/$worker/heartbeat" '{}' >/dev/null # it holds nothing now
  reply=$(api POST "/workers/$worker/claim" '{"limit":1}' -H 'Prefer: wait=50' -H "Idempotency-Key: $n")
  if jq -e .code <<<"$reply" >/dev/null; then until sleep 1 && register; do :; done; fi
  token=$(jq -r '.tasks[0].token // empty' <<<"$reply")
  [ -n "$token" ] || continue
  while sleep 10; do api POST "/workers/$worker/heartbeat" "{\"holds\":[{\"token\":\"$token\"}]}"; done >/dev/null &
  result=$(jq -c '.tasks[0]' <<<"$reply" | shout) &&
    [ "$(api POST "/tasks/$token/complete" "$result" | jq -r .status)" = settled ] ||
    api POST "/tasks/$token/fail" '{"error":{"code":"shell","message":"it failed"}}' >/dev/null
  kill $! && wait $! 2>/dev/null
done
