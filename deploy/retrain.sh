#!/bin/sh
# Train again with the feedback, and put the new model into service if it is not worse. Run it every
# night. The service goes on meanwhile, and notices the new runs/live within two seconds.
#
#   runs/next   the new model, tested on held-out pairs
#   runs/base   the accepted model, tested on held-out pairs: runs/next is compared with it
#   runs/final  the accepted model, trained on the held-out pairs too
#   runs/live   what the service serves: runs/final with all feedback
#   feedback    the log of `mgformer serve --feedback`
set -eu
cd "${MGFORMER_HOME:-/srv/mgformer}"

for file in feedback/feedback-*.jsonl; do
    [ -e "$file" ] || { echo "no feedback yet"; exit 0; }
    break
done
mgformer train feedback --from runs/base --out runs/next
# Exit code 2: the new model is worse. The accepted one stays, and still gets the new feedback.
code=0
mgformer promote runs/next runs/base --tolerance "${MGFORMER_TOLERANCE:-0.01}" || code=$?
case $code in
    0) mgformer refit runs/base --out runs/final ;;
    2) ;;
    *) exit "$code" ;;
esac
mgformer refresh runs/final --with feedback --out runs/live
exit "$code"
