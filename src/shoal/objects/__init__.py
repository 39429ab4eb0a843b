"""What people write, read strictly: manifests' requests, annotations, quantities.

Rule of this room: text in, values of the model out, or a refusal that says what to write instead.
Nothing is guessed, nothing is called, and a request is never made smaller than it was written.

Reading order: pods, workloads, annotations, devices, hosts, affinity, manifests, quantity.
"""
