"""Event files on the store, and TensorBoard that draws a copy of them: in a job's side-car, and on a user's machine."""
