# sh task.sh DIRECTORY SECONDS: the user process of a trivial job.
date +%s.%N >"$1/$$.began"
sleep "$2"
date +%s.%N >"$1/$$.ended"
