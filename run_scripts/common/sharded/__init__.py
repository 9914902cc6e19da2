"""Answers the rows of a corpus, shard by shard: on this machine or on Apache Beam, with the same bytes.

    plan shards -> in any process: read rows, batch by length, answer, write the shard -> note what is done

Begin with `shard.py`: it answers one shard, `job.py` all. `models.py` has the models, `formats.py` the files.
"""
