#!/usr/bin/env bash
# A Kubernetes cluster for development and tests: a node as a container of the Docker engine, of Go modules and Debian's
# containerd, which needs root on Linux, `make engine` and `make programs`.
#
#   deploy/cluster.sh which             say which cluster it is, and fail if it cannot be used
#   deploy/cluster.sh is-up             succeed if it runs
#   deploy/cluster.sh up                start it if there is none; print the path of its kubeconfig
#   deploy/cluster.sh load IMAGE...     copy images of the Docker engine into it
#   deploy/cluster.sh unload IMAGE...   delete images from it
#   deploy/cluster.sh add-node IMAGE... add a second node, with images, for pods that tolerate the taint `second-node`
#   deploy/cluster.sh remove-node       delete the second node
#   deploy/cluster.sh down              delete the cluster; the built programs stay
#
# PODWRIGHT_TEST_KUBECONFIG names the kubeconfig of another cluster, of kind or k3d, that may be used in its place. It is
# refused if it has namespaces that neither Kubernetes nor the tests made, unless PODWRIGHT_TEST_SHARED_CLUSTER=yes says
# that this is meant; there, add-node, remove-node and down do nothing. KUBECONFIG is never used.
# Only one test run at a time may use a cluster.
set -euo pipefail
NAMED=${PODWRIGHT_TEST_KUBECONFIG:+$(realpath --no-symlinks "$PODWRIGHT_TEST_KUBECONFIG")}
cd "$(dirname "$0")"

NAME=podwright-cluster
SUBNET=172.31.240
SUBNET6=fd00:172:31:240: # the second address family of the cluster, if the kernel has it
programs= # the folder of the programs that it is made of
STATE=/var/lib/$NAME # certificates and kubeconfig
CONFIG=$STATE/kubeconfig
export KUBECACHEDIR=$STATE/cache # of kubectl, which otherwise keeps it in the home folder

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

has_ipv6() {
    [ "$(cat /proc/sys/net/ipv6/conf/{all,default}/disable_ipv6 2>/dev/null | tr -d '\n')" = 00 ]
}

start_node() { # ROLE NUMBER
    addresses=(--ip "$SUBNET.$(($2 + 1))")
    if has_ipv6; then addresses+=(--ip6 "$SUBNET6:$(($2 + 1))"); fi
    # with the cgroups of the machine, because kubelet and the engine must see the same paths
    "$docker" run --detach --init --name "$NAME-$1" --hostname "$1" --network $NAME "${addresses[@]}" \
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

is_up() {
    [ "$("$docker" inspect --format '{{.State.Running}}' "$NAME-control" 2>/dev/null)" = true ]
}

up() {
    if is_up; then
        kubectl get --raw /readyz >/dev/null 2>&1 \
            || fail "the cluster $NAME does not answer; \`make cluster-down\` deletes it"
        return
    fi
    down # what is left of one that ended with its machine or engine, and cannot be started again
    build_images
    mkdir -p "$STATE"
    subnets=(--subnet "$SUBNET.0/24" --gateway "$SUBNET.1")
    if has_ipv6; then subnets+=(--ipv6 --subnet "$SUBNET6:/64" --gateway "$SUBNET6:1"); fi
    "$docker" network create "${subnets[@]}" $NAME >/dev/null
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

# The same for a cluster that was made elsewhere.
OURS='default|kube-(system|public|node-lease)|local-path-storage|podwright-test-.*' # namespaces of every cluster, and of tests
named_kubectl() { command kubectl --kubeconfig "$NAMED" "$@"; }

check_named() {
    command -v kubectl >/dev/null || fail "there is no kubectl, which the cluster of PODWRIGHT_TEST_KUBECONFIG needs"
    named_kubectl get --raw /readyz >/dev/null || fail "the cluster of PODWRIGHT_TEST_KUBECONFIG ($NAMED) does not answer"
    namespaces=$(named_kubectl get namespaces --output name) || fail "cannot list the namespaces of $NAMED"
    others=$(sed -E "/^namespace.(${OURS})\$/d; s,^namespace/,," <<<"$namespaces" | tr '\n' ' ')
    if [ -n "${others// /}" ] && [ "${PODWRIGHT_TEST_SHARED_CLUSTER-}" != yes ]; then
        fail "the cluster of PODWRIGHT_TEST_KUBECONFIG ($NAMED) has other namespaces: $others" \
            "- if it may be used for tests, set PODWRIGHT_TEST_SHARED_CLUSTER=yes"
    fi
}

load_named() {
    context=$(named_kubectl config current-context)
    case $context in
    kind-*) kind load docker-image --name "${context#kind-}" "$@" >&2 ;;
    k3d-*) k3d image import --cluster "${context#k3d-}" "$@" >&2 ;;
    *) fail "can load images into kind and k3d only, not into $context" ;;
    esac
}

# The nodes of kind and k3d are containers with the names of the nodes.
unload_named() {
    for node in $(named_kubectl get nodes --output name); do
        "$docker" exec "${node#node/}" crictl rmi "$@" >/dev/null 2>&1 || true
    done
}

run_named() {
    case $1 in
    which)
        check_named
        say "the cluster of PODWRIGHT_TEST_KUBECONFIG: $NAMED"
        ;;
    is-up) check_named ;;
    up)
        check_named
        echo "$NAMED"
        ;;
    load) load_named "${@:2}" ;;
    unload) unload_named "${@:2}" ;;
    esac
}

run_own() {
    case $1 in
    which)
        [ "$(id -u)" -eq 0 ] || fail "only root on Linux can make a cluster; or set PODWRIGHT_TEST_KUBECONFIG"
        say "a cluster of its own, in the containers $NAME-*"
        ;;
    is-up) is_up || exit 1 ;;
    up)
        up
        echo "$CONFIG"
        ;;
    load) load_into control "${@:2}" ;;
    unload) "$docker" exec "$NAME-control" ctr --namespace k8s.io images rm "${@:2}" >/dev/null ;;
    add-node) add_node "${@:2}" ;;
    remove-node) remove_node ;;
    down) down ;;
    esac
}

case ${1-} in
which | is-up | up | load | unload | add-node | remove-node | down) ;;
*) fail "unknown command '${1-}'; known are which, is-up, up, load, unload, add-node, remove-node and down" ;;
esac
docker=$(./engine.sh docker)
"$docker" info >/dev/null 2>&1 || fail "the Docker engine does not answer; \`make engine\` starts one on Debian"
if [ -n "$NAMED" ] && [ "$NAMED" != "$CONFIG" ]; then
    run_named "$@"
else
    case $1 in up | add-node | remove-node)
        programs=$(./tools.sh path kubectl)
        programs=${programs%/*}
        ;;
    esac
    run_own "$@"
fi
