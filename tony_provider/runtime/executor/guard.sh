# The program of the guard, see processes.py. $1 is the mark, NAME=value. Standard input is a pipe from the executor.
trap '' TERM INT HUP
PATH=$PATH:/usr/bin:/bin
LC_ALL=C # an environment may contain bytes that are no text
export PATH LC_ALL
command -v grep >/dev/null || {
    echo "no guard: there is no grep on this node" >&2
    exit
}

# The executor never writes, so the read returns when the executor has ended.
while read -r nothing; do :; done

killed=
looks=0 # at most ten seconds, because processes may fork while they are killed
empty=0 # consecutive scans without a process: one scan may miss a process that forks or executes another program
while [ $empty -lt 3 ] && [ $looks -lt 500 ]; do
    looks=$((looks + 1))
    empty=$((empty + 1))
    # Environments of other users cannot be read, and those of zombies are empty.
    for environ in $(grep -lszxFe "$1" /proc/[0-9]*/environ); do
        pid=${environ#/proc/}
        pid=${pid%/environ}
        empty=0
        kill -KILL "$pid" 2>/dev/null || continue # the process has ended, or may not be killed
        case " $killed " in *" $pid "*) ;; *) killed="$killed $pid" ;; esac
    done
    sleep 0.02 # poll, because only the parent of a process is notified of its end
done
[ -z "$killed" ] || echo "these processes of the task outlived the executor, and were killed:$killed" >&2
