# Runs a command on "node1", one of two hosts on one machine: each has a network, a name and shared memory of its own.
#   two_hosts.sh FOLDER COMMAND...   in new namespaces of network, UTS, IPC, mounts and processes
# `remote_shell` in FOLDER starts commands on node2 as ssh would, and `srun` one on each host as Slurm's would. The last
# line of stderr is the number of bytes that the link between the hosts carried. When this process ends, the kernel ends
# all others, and removes the hosts with them.
set -eu
folder=$1
shift

begin_host="mount -t tmpfs none /dev/shm; mount -t sysfs none /sys; ip link set lo up"
hostname node1
eval "$begin_host"
printf '127.0.0.1 localhost\n10.0.0.1 node1\n10.0.0.2 node2\n' >"$folder/etc_hosts"
mount --bind "$folder/etc_hosts" /etc/hosts

mkfifo "$folder/begun"
unshare --net --uts --ipc --mount sh -euc "hostname node2; $begin_host; echo >$folder/begun; exec sleep infinity" &
on_node2="nsenter --target $! --net --uts --ipc --mount"
read -r _ <"$folder/begun"

ip link add link1 type veth peer name link2 netns $!
ip address add 10.0.0.1/24 dev link1
ip link set link1 up
$on_node2 ip address add 10.0.0.2/24 dev link2
$on_node2 ip link set link2 up
until $on_node2 grep -q up /sys/class/net/link2/operstate && grep -q up /sys/class/net/link1/operstate; do :; done

cat >"$folder/remote_shell" <<END
#!/bin/sh
while [ "\${1#-}" != "\$1" ]; do shift; done
shift
exec $on_node2 sh -c "\$*"
END
cat >"$folder/srun" <<END
#!/bin/sh
while [ "\${1#-}" != "\$1" ]; do
    case \$1 in -N | -n | --nodelist | --input) shift ;; esac
    shift
done
SLURM_NODEID=0 "\$@" &
SLURM_NODEID=1 $on_node2 "\$@" &
wait
END
chmod +x "$folder/remote_shell" "$folder/srun"

code=0
PATH=$folder:$PATH "$@" || code=$?
cat /sys/class/net/link1/statistics/tx_bytes >&2
exit $code
