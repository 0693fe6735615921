#!/usr/bin/env python3
"""Checks the committed golden files (numpy alone) and that `make_goldens.py --check` notices a change."""
import glob
import json
import os
import struct
import sys
import tempfile
import unittest

import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)

import tensor_file
from make_goldens import difference

FILES = sorted(glob.glob(os.path.join(HERE, "*.safetensors")))


class Files(unittest.TestCase):
    def test_data_is_aligned_packed_and_finite(self):
        self.assertEqual(len(FILES), 22)
        for path in FILES:
            with open(path, "rb") as source:
                content = source.read()
            length, = struct.unpack_from("<Q", content)
            self.assertEqual((8 + length) % 64, 0, path)
            header = json.loads(content[8:8 + length])
            self.assertTrue(all(isinstance(value, str) for value in header.pop("__metadata__").values()), path)
            end = 0
            for name, entry in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
                self.assertEqual(entry["data_offsets"][0], end, (path, name))
                end = entry["data_offsets"][1]
            self.assertEqual(8 + length + end, len(content), path)
            for name, values in tensor_file.read(path)[0].items():
                self.assertTrue(np.isfinite(values).all(), (path, name))

    def test_all_files_together_stay_small(self):
        self.assertLess(sum(os.path.getsize(path) for path in FILES), 2500000)
        self.assertLess(max(os.path.getsize(path) for path in FILES), 300000)

    def test_training_cases_hold_every_state_and_learn(self):
        for path in FILES:
            tensors, metadata = tensor_file.read(path)
            if metadata["case"] == "ops":
                continue
            names = {name[5:] for name in tensors if name.startswith("grad.")}
            self.assertEqual(sum(tensors[f"init.{name}"].size for name in names), int(metadata["parameters"]), path)
            self.assertLessEqual(set(json.loads(metadata["zero_gradient"])), names, path)
            for state in [name[5:] for name in tensors if name.startswith("init.")]:
                for after in ("after1", "after10"):
                    self.assertEqual(tensors[f"{after}.{state}"].shape, tensors[f"init.{state}"].shape, (path, state))
            moved = [name for name in names if not np.array_equal(tensors[f"init.{name}"], tensors[f"after10.{name}"])]
            self.assertGreater(len(moved), len(names) // 2, path)

    def test_clip_acts_and_accumulation_has_two_micro_batches(self):
        tensors, metadata = tensor_file.read(os.path.join(HERE, "collective_r1_clip.safetensors"))
        self.assertGreater(tensors["grad_norm"].min(), float(metadata["clip"]))
        tensors, _ = tensor_file.read(os.path.join(HERE, "collective_r1_accumulate2.safetensors"))
        self.assertEqual(tensors["x"].shape, (20, 16, 20))

    def test_energy_flow_traces_show_what_each_case_is_for(self):
        least = dict(energy_flow=(), energy_flow_spawn=("spawned", "reflected"), energy_flow_spawn_full=("spawned", "refused", "reflected"),
                     energy_flow_projection=(), energy_flow_isometry=(), energy_flow_stop_share=("spawned",), energy_flow_stop_patience=())
        for case, happens in least.items():
            tensors, metadata = tensor_file.read(os.path.join(HERE, f"{case}.safetensors"))
            model, derived = json.loads(metadata["model"]), json.loads(metadata["derived"])
            last = dict(zip(json.loads(metadata["counters"]), tensors["trace.counters"][-1]))
            active = tensors["trace.active"]
            for name in ("arrived_up", "arrived_down", *happens):
                self.assertGreater(last[name], 0, (case, name))
            self.assertEqual(active.shape, (last["steps"], derived["rows"]), case)
            self.assertEqual(last["arrived_up"] + last["arrived_down"] + active[-1].sum(), last["used"], case)
            self.assertEqual((tensors["trace.parent"] >= 0).sum(), last["spawned"], case)
            self.assertEqual(last["steps"] < derived["steps"], "stop" in case, case)
            self.assertEqual(tensors["mapped"].shape, (model["batch"], model["width"] * model["height"]), case)
            if "spawn" in case or "stop" in case:
                self.assertGreater(active[-1].sum(), 0, (case, "nothing is projected"))
            if case == "energy_flow_stop_patience":
                done = (last["used"] - active.sum(1)).tolist()
                self.assertTrue(0 < done[-1] == done[-2] < model["stop_at"] * last["used"], case)

    def test_energy_is_laid_down_as_the_trace_carried_it(self):
        for path in FILES:
            tensors, _ = tensor_file.read(path)
            if "trace.energy" not in tensors:
                continue
            share = np.where(tensors["trace.active"][-1] > 0, np.abs(tensors["trace.position"][-1, :, 2]), 1)
            owner = tensors["trace.owner"][-1]
            for sample, surface in enumerate(tensors["surface"]):
                carried = (tensors["trace.energy"][-1] * share)[owner == sample].sum()
                self.assertLess(abs(surface.sum() - carried), 1e-5, (path, sample))

    def test_a_changed_value_a_lost_tensor_and_a_lost_file_are_noticed(self):
        tensors, metadata = tensor_file.read(os.path.join(HERE, "shallow_adam.safetensors"))
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "copy.safetensors")
            self.assertIn("missing", difference(path, tensors, metadata))
            tensor_file.write(path, tensors, metadata)
            self.assertIsNone(difference(path, tensors, metadata))
            changed = dict(tensors, loss=tensors["loss"] + np.float32(1e-3))
            self.assertIn("'loss'", difference(path, changed, metadata))
            changed.pop("loss")
            self.assertIn("other tensors", difference(path, changed, metadata))


if __name__ == "__main__":
    unittest.main()
