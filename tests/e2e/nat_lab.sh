#!/bin/bash
# nat_lab.sh: nodes behind NAT on one Linux machine, each in network namespaces of its own.
#
#   nat_lab.sh with COUNT -- COMMAND...   raise COUNT nodes (1 to 200) and a public host, run COMMAND on the public host, remove all
# and in COMMAND (a shell script, pytest), where N is a node's number, and 0 is the public host:
#   nat_lab.sh run N -- COMMAND...        run COMMAND on node N
#   nat_lab.sh open N PORT                forward PORT of NAT N's public address to node N        close N PORT   end that, and its connections
#   nat_lab.sh only N PORT...             NAT N lets out only TCP to these ports                   only N any     lets out all again
#   nat_lab.sh cut N | mend N             take NAT N off the public network, and put it back
#   nat_lab.sh slow N MBIT | slow N off   limit NAT N's link both ways, in Mbit/s
#   nat_lab.sh lose N PERCENT             drop this share of the packets through NAT N, both ways; 0 ends it
#   nat_lab.sh show                       print addresses and the rules of each NAT
#
# Node N is 10.77.N.2 behind a NAT with the public address 198.51.100.N. The NAT masquerades and drops all that comes in uninvited.
# The public host has 198.51.100.250 to .254; relay.test is .254, relay2.test is .253, proxy.test is .252 (in a private /etc/hosts).
#
# Needs Linux, unshare, nsenter, setpriv (util-linux), iproute2, nftables. Works as root, or as a user who may make user namespaces.
# Nothing leaves the namespaces. Namespaces, mounts and processes end with COMMAND or with this script, however it ends (kill -9, too).
# Exit status: that of COMMAND; 2 for wrong arguments; 77 where namespaces or nftables are not to be had (a test skips then).
# Example: nat_lab.sh with 2 -- sh -c 'python3 -m http.server 443 & sleep 1; nat_lab.sh run 1 -- curl -s relay.test:443; nat_lab.sh show'
set -euo pipefail
SELF=$(readlink -f "$0")
PATH=$(dirname "$SELF"):$PATH:/usr/sbin:/sbin
NET=198.51.100

die() { echo "nat-lab: $2" >&2; exit "$1"; }
usage() { sed -n '2,/^set -/{/^set -/!s/^# \{0,1\}//p}' "$SELF" >&2; exit 2; }
at() { local ns=$1; shift; nsenter --net="$NAT_LAB/$ns" -- "$@"; }

with() {
  [[ ${1:-} =~ ^[0-9]+$ && $1 -ge 1 && $1 -le 200 && ${2:-} == -- && $# -ge 3 ]] || usage
  for program in unshare nsenter setpriv ip nft; do command -v "$program" >/dev/null || die 77 "$program is missing"; done
  local flags=(--net --mount --pid --fork --kill-child=KILL --mount-proc)
  [ "$(id -u)" = 0 ] || flags+=(--map-root-user)
  unshare "${flags[@]}" -- nft list ruleset >/dev/null 2>&1 || die 77 "this machine allows no network namespaces with nftables"
  local lab status=0
  lab=$(mktemp -d "${TMPDIR:-/tmp}/nat-lab.XXXXXX")
  setpriv --pdeathsig KILL unshare "${flags[@]}" -- "$SELF" inside "$lab" "$@" <&0 &
  trap 'kill -KILL $! 2>/dev/null || true; wait 2>/dev/null || true; rmdir "$lab" 2>/dev/null || true' EXIT
  trap 'exit 143' TERM
  trap 'exit 130' INT
  wait $! || status=$?
  exit $status
}

inside() {
  export NAT_LAB=$1 NAT_COUNT=$2
  shift 3
  mount -t tmpfs nat-lab "$NAT_LAB"
  touch "$NAT_LAB/0"; mount --bind /proc/self/ns/net "$NAT_LAB/0"
  { cat /etc/hosts; echo "$NET.254 relay.test"; echo "$NET.253 relay2.test"; echo "$NET.252 proxy.test"; } > "$NAT_LAB/hosts"
  mount --bind "$NAT_LAB/hosts" /etc/hosts
  ip link set lo up
  ip link add br0 type bridge
  for last in 250 251 252 253 254; do ip addr add "$NET.$last/24" dev br0; done
  ip link set br0 up
  for ((n = 1; n <= NAT_COUNT; n++)); do node "$n"; done
  "$@"
}

node() {
  local n=$1
  for ns in "r$n" "$n"; do touch "$NAT_LAB/$ns"; unshare --net="$NAT_LAB/$ns" true; at "$ns" ip link set lo up; done
  ip link add "p$n" type veth peer name wan netns "$NAT_LAB/r$n"
  ip link set "p$n" master br0 up
  at "r$n" ip link add lan type veth peer name eth0 netns "$NAT_LAB/$n"
  at "r$n" ip addr add "$NET.$n/24" dev wan
  at "r$n" ip addr add "10.77.$n.1/24" dev lan
  at "r$n" ip link set wan up; at "r$n" ip link set lan up
  at "r$n" sh -c 'echo 1 > /proc/sys/net/ipv4/ip_forward'
  at "$n" ip addr add "10.77.$n.2/24" dev eth0; at "$n" ip link set eth0 up
  at "$n" ip route add default via "10.77.$n.1"
  at "r$n" nft -f - <<RULES
table ip nat {
  chain pre { type nat hook prerouting priority dstnat; }
  chain post { type nat hook postrouting priority srcnat; oifname "wan" masquerade; }
}
table inet guard {
  chain lossy { type filter hook forward priority -10; }
  chain input { type filter hook input priority 0; policy drop; iifname "lo" accept; ct state established,related accept; iifname "lan" meta l4proto icmp accept; }
  chain forward { type filter hook forward priority 0; policy drop; ct state established,related accept; iifname "lan" jump out; ct status dnat accept; }
  chain out { accept; }
}
RULES
}

command=${1:-}; shift || usage
case $command in
  with) with "$@" ;;
  inside) inside "$@"; exit ;;
  run | open | close | only | cut | mend | slow | lose | show) [ -d "${NAT_LAB:-}" ] || die 2 "$command works inside of: nat_lab.sh with COUNT -- COMMAND" ;;
  *) usage ;;
esac
n=${1:-}
if [ "$command" != show ]; then
  [[ $n =~ ^[0-9]+$ && $n -le $NAT_COUNT && ($n -ge 1 || $command == run) ]] || die 2 "there is no node ${n:-(none given)}; nodes are 1 to $NAT_COUNT"
  shift
fi
case $command in
  run) [ "${1:-}" = -- ] && [ $# -ge 2 ] || usage; shift; exec nsenter --net="$NAT_LAB/$n" -- "$@" ;;
  open) at "r$n" nft delete table inet shut 2>/dev/null || true
    for l4 in tcp udp; do at "r$n" nft add rule ip nat pre iifname wan "$l4" dport "$1" dnat to "10.77.$n.2:$1"; done ;;
  close) at "r$n" nft flush chain ip nat pre # and end the connections that came in that way
    at "r$n" nft add table inet shut
    at "r$n" nft add chain inet shut forward '{ type filter hook forward priority -20; ct status dnat drop; }' ;;
  only) at "r$n" nft flush chain inet guard out
    if [ "$1" = any ]; then at "r$n" nft add rule inet guard out accept
    else at "r$n" nft add rule inet guard out tcp dport "{ $(IFS=,; echo "$*") }" accept; fi ;;
  cut) at "r$n" ip link set wan down ;;
  mend) at "r$n" ip link set wan up ;;
  slow) for card in wan lan; do
      at "r$n" tc qdisc del dev "$card" root 2>/dev/null || true
      [ "$1" = off ] || at "r$n" tc qdisc add dev "$card" root tbf rate "${1}mbit" burst 64k latency 50ms
    done ;;
  lose) at "r$n" nft flush chain inet guard lossy
    [ "$1" = 0 ] || at "r$n" nft add rule inet guard lossy numgen random mod 100 '<' "$1" drop ;;
  show) for ((i = 1; i <= NAT_COUNT; i++)); do
      echo "node $i: 10.77.$i.2, public $NET.$i, $(at "r$i" ip -br link show wan | awk '{print $2}')"
      at "r$i" nft list ruleset | sed 's/^/    /'
    done ;;
esac
