#!/usr/bin/env bash
# A worker in bash: counts the words of tasks of type `words`, until Ctrl-C.
#
#     ./worker.sh
#     tideq submit words '{"text": "the tide goes out"}' --wait
#
# TIDEQ_URL and TIDEQ_API_KEY set the service and the key.
set -euo pipefail

api=${TIDEQ_URL:-http://127.0.0.1:8080}/internal/workers
key=()
[ -z "${TIDEQ_API_KEY:-}" ] || key=(-H "Authorization: Bearer $TIDEQ_API_KEY")

# In the background, because bash handles signals while it waits and not while a command runs.
call() { # METHOD PATH [BODY]
  curl -sS --fail-with-body -X "$1" "${key[@]}" "$api$2" ${3:+-d "$3"} &
  wait $!
}

# The fields of answers come in a fixed order, so `sed` can read them; in other languages use a JSON parser.
worker=$(call POST /register '{"name": "bash", "task_types": ["words"], "capacity": 1}' |
  sed 's/.*"worker_id":"\([^"]*\)".*/\1/')
echo "registered as $worker"

# Deregistering releases held tasks at once, without using up a retry. Without it, for example after a kill, the task
# returns to the queue when the worker's heartbeat times out.
answer=$(mktemp)
leave() { rm "$answer"; curl -sS -o /dev/null -X DELETE "${key[@]}" "$api/$worker"; }
trap leave EXIT
trap 'exit 0' INT TERM

while true; do
  if ! call POST "/$worker/poll" '{"wait_seconds": 20}' > "$answer"; then
    ! grep -q unknown-worker "$answer" || exit 1 # declared dead: restart this script
    sleep 1
    continue
  fi
  grep -q '"tasks":\[{' "$answer" || continue # no task was ready: poll again
  task=$(sed 's/^{"tasks":\[{"task_id":"\([^"]*\)".*/\1/' "$answer")
  lease=$(sed 's/.*"lease":"\([^"]*\)".*/\1/' "$answer")
  text=$(sed 's/.*"parameters":{[^}]*"text": *"\([^"]*\)".*/\1/' "$answer")
  held="\"task_id\": \"$task\", \"lease\": \"$lease\""

  call POST "/$worker/start" "{$held}" > /dev/null || continue # cancelled meanwhile
  count=$(wc -w <<< "$text")
  call POST "/$worker/result" "{$held, \"status\": \"completed\", \"result\": {\"words\": $count}}" > /dev/null || continue
  echo "$task: $count words"
done
