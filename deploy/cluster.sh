#!/usr/bin/env bash
# A Kubernetes cluster for development and tests. With KUBECONFIG set, it is that one. Else it is made here: a node as a
# container of the Docker engine, of Go modules and Debian's containerd, which needs root on Linux, Go 1.26 and
# `make engine`.
#
#   deploy/cluster.sh up                start it if it does not run; print the path of its kubeconfig
#   deploy/cluster.sh load IMAGE...     copy images of the Docker engine into it
#   deploy/cluster.sh add-node IMAGE... add a second node, with images, for pods that tolerate the taint `second-node`
#   deploy/cluster.sh remove-node       delete the second node
#   deploy/cluster.sh down              delete the cluster; the built programs stay
#
# With the cluster of KUBECONFIG, add-node, remove-node and down do nothing. Only one test run at a time may use a cluster.
set -euo pipefail
cd "$(dirname "$0")"

NAME=podwright-cluster
SUBNET=172.31.240
programs= # the folder of the programs that it is made of
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

kubectl() { "$programs/kubectl" --kubeconfig "$CONFIG" "$@"; }

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
        --build-context programs="$programs" cluster >/dev/null
}

start_node() { # ROLE NUMBER
    # with the cgroups of the machine, because kubelet and the engine must see the same paths
    "$docker" run --detach --init --name "$NAME-$1" --hostname "$1" --network $NAME --ip "$SUBNET.$(($2 + 1))" \
        --privileged --cgroupns host --volume /sys/fs/cgroup:/sys/fs/cgroup --tmpfs /run --tmpfs /tmp:exec \
        --volume "$NAME-$1:/var/lib" --volume "$STATE:/shared" --volume "$programs:/opt/kubernetes:ro" \
        podwright/node:cluster "$1" "$2" >/dev/null
}

load_into() { # ROLE IMAGE...
    file=$(mktemp "$STATE/images.XXXXXX")
    "$docker" save --output "$file" "${@:2}"
    "$docker" exec "$NAME-$1" ctr --namespace k8s.io images import "/shared/${file##*/}" >/dev/null
    rm "$file"
}

up() {
    programs=$(./tools.sh kubectl)
    programs=${programs%/*}
    if [ -f "$CONFIG" ] && kubectl get --raw /readyz >/dev/null 2>&1; then return; fi
    build_images
    down
    mkdir -p "$STATE"
    "$docker" network create --subnet "$SUBNET.0/24" --gateway "$SUBNET.1" $NAME >/dev/null
    start_node control 1
    wait_for 120 kubectl wait --for condition=Ready node/control --timeout 1s
    load_into control podwright/{pause,coredns}:cluster
    kubectl apply --filename cluster/coredns.yaml >/dev/null
    wait_for 120 kubectl wait --for condition=Ready pods --all --namespace kube-system --timeout 1s
}

add_node() { # IMAGE...
    build_images
    start_node worker 2
    wait_for 120 kubectl wait --for condition=Ready node/worker --timeout 1s
    load_into worker podwright/pause:cluster "$@"
}

remove_node() {
    delete_container worker
    kubectl delete node worker --ignore-not-found >/dev/null
}

delete_container() { # ROLE
    "$docker" rm --force --volumes "$NAME-$1" >/dev/null 2>&1 || true
    "$docker" volume rm "$NAME-$1" >/dev/null 2>&1 || true
}

down() {
    for role in control worker; do delete_container $role; done
    "$docker" network rm $NAME >/dev/null 2>&1 || true
    find /sys/fs/cgroup -depth -type d \( -path '*/podwright' -o -path '*/podwright/*' \) -exec rmdir {} + 2>/dev/null || true
    rm -rf "$STATE"
}

# The same for the cluster of KUBECONFIG.
check_given() {
    command -v kubectl >/dev/null || fail "there is no kubectl, which the cluster of KUBECONFIG needs"
    kubectl get --raw /readyz >/dev/null || fail "the cluster of KUBECONFIG ($KUBECONFIG) does not answer"
}

load_given() {
    context=$(kubectl config current-context)
    case $context in
    kind-*) kind load docker-image --name "${context#kind-}" "$@" >&2 ;;
    k3d-*) k3d image import --cluster "${context#k3d-}" "$@" >&2 ;;
    *) fail "can load images into kind and k3d only, not into $context" ;;
    esac
}

action=${1-}
case $action in
up | load | add-node | remove-node | down) shift ;;
*) fail "unknown command '$action'; known are up, load, add-node, remove-node and down" ;;
esac
docker=$(./engine.sh docker)
if [ -n "${KUBECONFIG-}" ] && [ "$KUBECONFIG" != "$CONFIG" ]; then
    kubectl() { command kubectl "$@"; }
    case $action in
    up) check_given && echo "$KUBECONFIG" ;;
    load) load_given "$@" ;;
    esac
    exit
fi
case $action in
up) up && echo "$CONFIG" ;;
load) load_into control "$@" ;;
add-node | remove-node)
    programs=$(./tools.sh kubectl)
    programs=${programs%/*}
    if [ "$action" = add-node ]; then add_node "$@"; else remove_node; fi
    ;;
down) down ;;
esac
