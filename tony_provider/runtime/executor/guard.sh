# The guard's program, see guard.py. $1: the mark, NAME=value. 0: a pipe whose other end the executor has.
trap '' TERM INT HUP
PATH=$PATH:/usr/bin:/bin
LC_ALL=C # what is in an environment need not be text
export PATH LC_ALL
command -v grep >/dev/null || {
    echo "no guard: there is no grep on this node" >&2
    exit
}

# Nobody writes: it returns when the executor is gone.
while read -r nothing; do :; done

killed=
looks=0 # ten seconds of them, for those that fork while they are being killed
empty=0 # in a row that find nobody: one that is just forking, or becoming another program, may escape one of them
while [ $empty -lt 3 ] && [ $looks -lt 500 ]; do
    looks=$((looks + 1))
    empty=$((empty + 1))
    # Others' cannot be read, and a zombie's is empty.
    for environ in $(grep -lszxFe "$1" /proc/[0-9]*/environ); do
        pid=${environ#/proc/}
        pid=${pid%/environ}
        empty=0
        kill -KILL "$pid" 2>/dev/null || continue # gone, or not ours to kill
        case " $killed " in *" $pid "*) ;; *) killed="$killed $pid" ;; esac
    done
    sleep 0.02 # nothing tells of the end of somebody else's child
done
[ -z "$killed" ] || echo "these processes of the task outlived the executor, and were killed:$killed" >&2
