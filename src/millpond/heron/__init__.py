"""
Heron's checkpoint manager, served from any object store or folder, and clients of it.

``server`` listens, ``states`` keeps, ``client`` asks, ``double`` behaves as Heron's own clients do, and
``millpond heron-ckptmgr`` is the command. Needs ``pip install "millpond[heron]"``; nothing else of Millpond loads this.
"""
