"""Tunnels: connections of a user's machine to servers of a job's tasks, as frames over whatever carries bytes.

A *tunnel* goes from the user's machine to the application master, sealed and in the bodies of PUT requests, since
YARN's proxy passes nothing else. It holds many *streams*, each of them one TCP connection at both of its ends. From the
master on, frames go over the executors' own streams.
"""
