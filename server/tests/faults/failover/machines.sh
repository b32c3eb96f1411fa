# Five machines in network namespaces of their own: db1 and db2 (etcd, Patroni, PostgreSQL), db3 (etcd), node1 and node2 (HAProxy).
#
# Runs as the first process of a namespace of processes, so that all of them end when this does; and it does when its standard
# input ends, whatever ended the test. Namespaces of the network have no names outside, and go with their last process.
#
# It is told what to do by lines on standard input, and answers each with `done` or `failed`.
folder=$1 programs=$2 faketime=$3 skew=$4 user=$5
set -eu
exec 3<&0 </dev/null 2>>"$folder/machines.log"
export PATH="$PATH:/usr/sbin:/sbin" LANG=C.UTF-8

mount -t tmpfs tmpfs /run
ip link add name switch type bridge
ip link set switch up

# NAME NUMBER: a machine on the switch.
machine() {
    ip netns add "$1"
    ip link add "$1" type veth peer name eth0 netns "$1"
    ip link set "$1" master switch up
    ip -n "$1" link set lo up
    ip -n "$1" address add "10.0.0.$2/24" dev eth0
    ip -n "$1" link set eth0 up
}

# PostgreSQL does not run as root. Where root is only a name for whoever runs the test, another name will do.
if [ "$user" = 0 ]; then
    chown postgres: "$folder"/*/
    as_postgres="setpriv --reuid=postgres --regid=postgres --init-groups"
else
    as_postgres="unshare --user --map-user=$(id -u postgres) --map-group=$(id -g postgres)"
fi

# MACHINE PROGRAM ARGUMENTS: runs a program on it.
on() {
    name=$1
    shift
    exec nsenter "--net=/run/netns/$name" $as_postgres env -i "PATH=$PATH" "LANG=$LANG" \
        "$@" >>"$folder/$name/log" 2>&1 3<&-
}

start() {
    case $1 in
    node*) on "$1" haproxy -db -f "$folder/$1/haproxy.cfg" & ;;
    *)
        on "$1" etcd --config-file "$folder/$1/etcd.yaml" &
        if [ -e "$folder/$1/patroni.yaml" ]; then
            # Should it come first, it would look for etcd only every five seconds.
            (sleep 2; on "$1" patroni "$folder/$1/patroni.yaml") &
        fi
        ;;
    esac
}

# MACHINE WORD: its processes whose command line has the word in it.
processes() {
    for process in $(ip netns pids "$1"); do
        if tr '\0' ' ' <"/proc/$process/cmdline" | grep -q "$2"; then echo "$process"; fi
    done
}

# MACHINE add|delete: the other machines of databases cannot be reached from it any more, or again.
part() {
    for other in 11 12 13; do
        case $1 in db$((other - 10))) ;; *) ip -n "$1" route "$2" blackhole "10.0.0.$other" ;; esac
    done
}

# MACHINE: whether Patroni would let it take over. Some seconds pass until it would, after commits wait for it.
is_heir() {
    nsenter "--net=/run/netns/$1" python3 -c 'from sys import argv; from urllib.request import urlopen; urlopen(argv[1], timeout=2)' \
        "http://10.0.0.1${1#db}:8008/sync" 2>>"$folder/heir.log"
}

carry_out() {
    case $1 in
    start) start "$2" ;;
    # All at once, as when the power fails; again while any that just came to be is there.
    kill) while all=$(ip netns pids "$2") && [ "$all" ]; do kill -KILL $all 2>/dev/null || true; done ;;
    # The cable.
    cut) ip link set "$2" down ;;
    mend) ip link set "$2" up ;;
    # From the other machines of databases, and not from those of nodes.
    part) part "$2" add ;;
    join) part "$2" delete ;;
    # What it is sent by the primary is not read for a while.
    hold) kill -STOP $(processes "$2" walreceiver) ;;
    release) kill -CONT $(processes "$2" walreceiver) ;;
    is-heir) is_heir "$2" ;;
    *) return 1 ;;
    esac
}

machine db1 11
machine db2 12
machine db3 13
machine node1 21
machine node2 22

# The clock of PostgreSQL on db2, and nothing else there, is off by so many seconds.
mkdir "$folder/db2/programs"
ln -s "$programs"/* "$folder/db2/programs"
rm "$folder/db2/programs/postgres"
cat >"$folder/db2/programs/postgres" <<END
#!/bin/sh
LD_PRELOAD=$faketime FAKETIME=$skew FAKETIME_DONT_FAKE_MONOTONIC=1 NO_FAKE_STAT=1 exec $programs/postgres "\$@"
END
chmod a+x "$folder/db2/programs/postgres"

obey() {
    echo done
    while read -r what which <&3; do
        if carry_out "$what" "$which"; then echo done; else echo failed; fi
    done
}
obey &
# This also reaps all whose parents have ended: whoever waits for the end of one would wait for ever.
wait "$!"
