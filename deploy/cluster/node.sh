#!/bin/bash
# Runs a node of the cluster in a container: `node.sh control 1` or `node.sh worker 2`. The container ends
# when one of its programs ends; their output is the container's log.
set -euo pipefail

role=$1 number=$2
name=$(hostname)
address_of() { # FAMILY
    ip "-$1" -oneline address show dev eth0 scope global | awk '{ sub("/.*", "", $4); print $4; exit }'
}
address=$(address_of 4)
address6=$(address_of 6) # empty without a second address family
services=10.96.0.0/16
pods=10.244.0.0/16
services6=${address6:+,fd00:10:96::/112}
pods6=${address6:+,fd00:10:244::/48}
shared=/shared # certificates and kubeconfig, for all nodes

export GOGC=400 # for all programs: less CPU for more memory

run() { "$@" 2>&1 | sed --unbuffered "s/^/${1##*/}: /" & }

certificate() { # NAME SUBJECT [ALTERNATIVE NAMES]
    openssl req -newkey rsa:2048 -nodes -keyout "$shared/$1.key" -subj "$2" 2>/dev/null \
        | openssl x509 -req -CA "$shared/ca.crt" -CAkey "$shared/ca.key" -days 365 -out "$shared/$1.crt" \
            -extfile <(echo "${3:+subjectAltName=$3}") 2>/dev/null
}

make_certificates() {
    openssl req -x509 -newkey rsa:2048 -nodes -keyout "$shared/ca.key" -out "$shared/ca.crt" -days 365 \
        -subj /CN=podwright-cluster 2>/dev/null
    openssl genrsa -out "$shared/accounts.key" 2048 2>/dev/null
    certificate admin /O=system:masters/CN=admin
    certificate proxy /CN=front-proxy
    certificate server /CN=kube-apiserver \
        "IP:$address,IP:127.0.0.1,IP:10.96.0.1,DNS:kubernetes,DNS:kubernetes.default,DNS:kubernetes.default.svc"
    kubeconfig() { kubectl config --kubeconfig "$shared/unfinished" "$@" >/dev/null; }
    kubeconfig set-cluster podwright --server "https://$address:6443" --embed-certs --certificate-authority "$shared/ca.crt"
    kubeconfig set-credentials admin --embed-certs --client-certificate "$shared/admin.crt" --client-key "$shared/admin.key"
    kubeconfig set-context podwright --cluster podwright --user admin
    kubeconfig use-context podwright
    mv "$shared/unfinished" "$shared/kubeconfig"
}

run_control_plane() {
    [ -f "$shared/kubeconfig" ] || make_certificates
    run etcd --data-dir /var/lib/etcd --log-level error --unsafe-no-fsync
    run kube-apiserver --etcd-servers http://127.0.0.1:2379 --advertise-address "$address" \
        --service-cluster-ip-range "$services$services6" --authorization-mode Node,RBAC --allow-privileged \
        --client-ca-file "$shared/ca.crt" --tls-cert-file "$shared/server.crt" --tls-private-key-file "$shared/server.key" \
        --kubelet-client-certificate "$shared/admin.crt" --kubelet-client-key "$shared/admin.key" \
        --kubelet-preferred-address-types InternalIP \
        --service-account-issuer https://kubernetes.default.svc \
        --service-account-key-file "$shared/accounts.key" --service-account-signing-key-file "$shared/accounts.key" \
        --requestheader-client-ca-file "$shared/ca.crt" --requestheader-allowed-names front-proxy \
        --requestheader-username-headers X-Remote-User --requestheader-group-headers X-Remote-Group \
        --requestheader-extra-headers-prefix X-Remote-Extra- --enable-aggregator-routing \
        --proxy-client-cert-file "$shared/proxy.crt" --proxy-client-key-file "$shared/proxy.key"
    until kubectl --kubeconfig "$shared/kubeconfig" get --raw /readyz >/dev/null 2>&1; do sleep 0.2; done
    run kube-controller-manager --kubeconfig "$shared/kubeconfig" --leader-elect=false --root-ca-file "$shared/ca.crt" \
        --service-account-private-key-file "$shared/accounts.key" --horizontal-pod-autoscaler-sync-period 5s \
        --kube-api-qps 500 --kube-api-burst 1000
    run kube-scheduler --kubeconfig "$shared/kubeconfig" --leader-elect=false \
        --authentication-tolerate-lookup-failure --kube-api-qps 500 --kube-api-burst 1000
}

run_node() {
    # the pods of each node have a network of their own, to which the other nodes have a route
    for other in 1 2; do
        if [ "$other" = "$number" ]; then continue; fi
        ip route replace "10.244.$other.0/24" via "${address%.*}.$((other + 1))"
        if [ -n "$address6" ]; then
            ip route replace "fd00:10:244:$other::/64" via "${address6%:*}:$((other + 1))"
        fi
    done
    mkdir -p /etc/cni/net.d
    sed "s/NUMBER/$number/" /etc/podwright/cni.conflist >/etc/cni/net.d/podwright.conflist
    if [ -z "$address6" ]; then sed -i /::/d /etc/cni/net.d/podwright.conflist; fi
    for controller in /sys/fs/cgroup/*/cgroup.procs /sys/fs/cgroup/cgroup.procs; do
        [ ! -f "$controller" ] || mkdir -p "$(dirname "$controller")/podwright/$name"
    done
    run containerd --config /etc/podwright/containerd.toml --log-level warn
    until ctr version >/dev/null 2>&1; do sleep 0.1; done
    until [ -f "$shared/kubeconfig" ]; do sleep 0.1; done
    taints=()
    if [ "$role" = worker ]; then taints=(--register-with-taints second-node=:NoSchedule); fi
    run kubelet --kubeconfig "$shared/kubeconfig" --config /etc/podwright/kubelet.yaml --node-ip "$address${address6:+,$address6}" \
        --hostname-override "$name" --cgroup-root "/podwright/$name" "${taints[@]}"
    run kube-proxy --kubeconfig "$shared/kubeconfig" --hostname-override "$name" --proxy-mode nftables \
        --cluster-cidr "$pods$pods6" --conntrack-max-per-core 0
    until kubectl --kubeconfig "$shared/kubeconfig" get node "$name" >/dev/null 2>&1; do sleep 0.2; done
    # IPv4 only: with IPv6, this release writes rules for sets that do not exist, and then none at all
    run kube-router --kubeconfig "$shared/kubeconfig" --hostname-override "$name" --run-firewall --run-router=false \
        --run-service-proxy=false --service-cluster-ip-range "$services"
}

mount --make-rshared /
# several times as fast for kube-router's rules, where the kernel has it
if iptables-legacy --list >/dev/null 2>&1; then update-alternatives --set iptables /usr/sbin/iptables-legacy; fi
if [ "$role" = control ]; then run_control_plane; fi
run_node
wait -n
