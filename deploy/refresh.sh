#!/bin/sh
# Serve the accepted model with all feedback so far. Run it every hour; it trains nothing.
#
#   runs/final  the accepted model, trained on all pairs
#   runs/live   what the service serves; it notices a new one within two seconds
#   feedback    the log of `mgformer serve --feedback`
set -eu
cd "${MGFORMER_HOME:-/srv/mgformer}"

for file in feedback/feedback-*.jsonl; do
    [ -e "$file" ] || { echo "no feedback yet"; exit 0; }
    break
done
mgformer refresh runs/final --with feedback --out runs/live
