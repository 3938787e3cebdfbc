#!/usr/bin/env bash
# A Kubernetes cluster for development, where neither kind nor a registry of images can be had: two nodes as containers of
# the Docker engine, made of Go modules and Debian's containerd. It does not enforce network policies. Needs root on
# Linux, Go 1.26 and `make engine`.
#
#   deploy/cluster.sh up            start it; print the path of its kubeconfig
#   deploy/cluster.sh load IMAGE... copy images of the Docker engine into it
#   deploy/cluster.sh down          delete it; only the built programs stay
set -euo pipefail
cd "$(dirname "$0")"

NAME=podwright-cluster
NODES=(control worker)
MODULES=(kubernetes node)
SUBNET=172.31.240
STATE=/var/lib/$NAME # certificates and kubeconfig
CONFIG=$STATE/kubeconfig

say() { echo "cluster: $*" >&2; }
fail() {
    say "$*"
    exit 1
}

# Report any other command that fails.
trap 'say "failed at line $LINENO: $BASH_COMMAND"' ERR
set -o errtrace

kubectl() { "${programs[kubernetes]}/kubectl" --kubeconfig "$CONFIG" "$@"; }

wait_for() { # SECONDS COMMAND...
    limit=$((SECONDS + $1))
    until "${@:2}" >/dev/null 2>&1; do
        [ "$SECONDS" -lt "$limit" ] || fail "timed out after $1 s: ${*:2}"
        sleep 0.5
    done
}

build_images() {
    for target in node pause; do
        "$docker" build --quiet --target $target --tag podwright/$target:cluster cluster >/dev/null
    done
    "$docker" build --quiet --target coredns --tag podwright/coredns:cluster \
        --build-context programs="${programs[node]}" cluster >/dev/null
}

start_node() { # ROLE NUMBER
    mounts=()
    for module in "${MODULES[@]}"; do mounts+=(--volume "${programs[$module]}:/opt/$module:ro"); done
    # with the cgroups of the machine, because kubelet and the engine must see the same paths
    "$docker" run --detach --init --name "$NAME-$1" --hostname "$1" --network $NAME --ip "$SUBNET.$(($2 + 1))" \
        --privileged --cgroupns host --volume /sys/fs/cgroup:/sys/fs/cgroup --tmpfs /run --tmpfs /tmp:exec \
        --volume "$NAME-$1:/var/lib" --volume "$STATE:/shared" "${mounts[@]}" \
        podwright/node:cluster "$1" "$2" >/dev/null
}

load() {
    for node in "${NODES[@]}"; do
        "$docker" save "$@" | "$docker" exec --interactive "$NAME-$node" ctr --namespace k8s.io images import - >/dev/null
    done
}

up() {
    if [ -f "$CONFIG" ] && kubectl get --raw /readyz >/dev/null 2>&1; then return; fi
    build_images
    down
    mkdir -p "$STATE"
    "$docker" network create --subnet "$SUBNET.0/24" --gateway "$SUBNET.1" $NAME >/dev/null
    for number in 1 2; do start_node "${NODES[number - 1]}" $number; done
    wait_for 120 kubectl wait --for condition=Ready nodes --all --timeout 1s
    load podwright/{pause,coredns}:cluster
    kubectl apply --filename cluster/coredns.yaml >/dev/null
    wait_for 120 kubectl wait --for condition=Ready pods --all --namespace kube-system --timeout 1s
}

down() {
    for node in "${NODES[@]}"; do
        "$docker" rm --force --volumes "$NAME-$node" >/dev/null 2>&1 || true
        "$docker" volume rm "$NAME-$node" >/dev/null 2>&1 || true
    done
    "$docker" network rm $NAME >/dev/null 2>&1 || true
    find /sys/fs/cgroup -depth -type d -path '*/podwright/*' -exec rmdir {} + 2>/dev/null || true
    rm -rf "$STATE"
}

docker=$(./engine.sh docker)
declare -A programs
for module in "${MODULES[@]}"; do programs[$module]=$(./tools.sh "$module"); done
case ${1-} in
up) up && echo "$CONFIG" ;;
load) load "${@:2}" ;;
down) down ;;
*) fail "unknown command '${1-}'; known are up, load and down" ;;
esac
