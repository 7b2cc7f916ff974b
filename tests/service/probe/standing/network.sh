# Two network namespaces that see each other, as a user who is root in them: prints a pid in each, and ends with its input.
set -e
unshare --net sleep infinity &
other=$!
trap 'kill $other' EXIT
until [ "$(readlink /proc/$other/ns/net)" != "$(readlink /proc/$$/ns/net)" ]; do sleep 0.05; done
ip link set lo up
ip link add first type veth peer name second
ip link set second netns $other
ip address add 10.9.0.1/24 dev first
ip link set first up
nsenter --target $other --net sh -c 'ip link set lo up; ip address add 10.9.0.2/24 dev second; ip link set second up'
echo $$ $other
read -r line || true
