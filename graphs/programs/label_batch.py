#!/usr/bin/env python3
"""Labels a batch of parcels: `graphs/tools/parcels/label_batch.yaml` starts it."""

from graph_program import CallError, call_all, run


def label_batch(inputs):
    parcels = inputs["parcels"]
    # One request: the graph makes the calls concurrently, and each has a record in its journal.
    labels = call_all((("parcels/label", parcel) for parcel in parcels), return_errors=True)
    made = [label for label in labels if not isinstance(label, CallError)]
    failed = [
        {"address": parcel["address"], "reason": str(label)}
        for parcel, label in zip(parcels, labels)
        if isinstance(label, CallError)
    ]
    # The caller gets only the summary.
    return {"labelled": len(made), "cents": sum(label["cents"] for label in made), "failed": failed}


run(label_batch)
