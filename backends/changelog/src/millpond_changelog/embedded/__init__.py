"""
A log in a folder, for a laptop and for tests: the same promises as Kafka's, kept by files, locks and syncs.

::

    topics/<name>/TOPIC                       the topic's name, identity, partitions and settings
    topics/<name>/<partition>/LOCK            held while frames are added
    topics/<name>/<partition>/COMPACTION      held while segments are written anew
    topics/<name>/<partition>/<offset>.start  what is before that offset was removed
    topics/<name>/<partition>/<offset>.log    a segment: frames as they came
    topics/<name>/<partition>/<from>-<to>.log what compaction left of those offsets
    owners/<digest>                           an owner's epoch, and its last committed append: the commit point
    owners/<digest>.lock                      held while that is changed
    owners/<digest>-<epoch>.live              held while an append of that claim is open
"""
