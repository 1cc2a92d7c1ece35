# Write a folder for each node and relay below /nodes: its key, its certificate and peers.yaml. node-1 is
# the founder of the mesh; the mesh key stays in this service's volume. At the next start the nodes get new
# certificates for the same keys. The settings of `init` are not used. $1: the relay as NAME=HOST:PORT, or nothing; the rest: the nodes.
set -eu
relay=$1
shift
cd "$HOME"
if [ ! -e demo ]; then
    fednode init demo --set tuning.kind=closed-form --site node-1 --address "${1#node-1=}" ${relay:+--relay "$relay"}
fi
cd demo
fednode invite --out /nodes "$@" ${relay:+"$relay"}
[ -e /watch/page-token ] || od -An -N16 -tx1 /dev/urandom | tr -d ' \n' > /watch/page-token
