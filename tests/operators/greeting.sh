echo "hello from $RUN"
