# sh task.sh DIRECTORY SECONDS: the user process of a trivial job.
date +%s.%N >"$1/$$.began"
flock --shared "$1/gate" true
sleep "$2"
date +%s.%N >"$1/$$.ended"
