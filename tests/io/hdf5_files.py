"""Writes HDF5 files with h5py, and beside each data set its bytes as h5py reads them back: FOLDER/FILE.h5, FOLDER/FILE.NAME.bin."""
import pathlib
import sys

import h5py
import numpy as np

SHAPES = {"one": (1,), "prime": (101, 7), "five": (37, 5, 2, 13, 1), "six": (11, 3, 2, 5, 4, 2), "none": (0, 4)}
CHUNKS = {"one": (1,), "prime": (10, 3), "five": (4, 5, 2, 13, 1), "six": (3, 2, 2, 3, 4, 2), "none": (2, 4)}
TYPES = ("<f2", "<f4", "<i2", "<i4", "u1", "<f8", "<u2", "<i8", "i1")


def values(shape, kind, generator):
    if kind[-2] == "f":
        return (generator.standard_normal(shape) * 100).astype(kind)
    return generator.integers(0, 120, shape).astype(kind)


def add_all(file, latest):
    generator = np.random.default_rng(7)
    for number, kind in enumerate(TYPES):
        for name, shape in SHAPES.items():
            data = values(shape, kind, generator)
            known = {"data": data, "chunks": CHUNKS[name]}
            file.create_dataset(f"plain_{name}_{number}", data=data)
            file.create_dataset(f"growing_{name}_{number}", compression="gzip", maxshape=(None, *shape[1:]), **known)
            if not data.size:
                continue  # h5py refuses chunks larger than the shape
            file.create_dataset(f"chunked_{name}_{number}", **known)
            file.create_dataset(f"gzip_{name}_{number}", compression="gzip", compression_opts=4, **known)
            file.create_dataset(f"shuffled_{name}_{number}", compression="gzip", shuffle=True, **known)
            file.create_dataset(f"shuffle_alone_{name}_{number}", shuffle=True, **known)
    data = values((53, 6), "<f4", generator)
    file.create_dataset("library_big_endian", data=data.astype(">f4"), chunks=(5, 2))
    file.create_dataset("library_checked", data=data, chunks=(5, 2), fletcher32=True)
    file.create_dataset("lzf", data=data, chunks=(5, 2), compression="lzf")
    file.create_dataset("two_growing", data=data, chunks=(5, 2), maxshape=(None, None))
    file.create_dataset("second_axis_grows", data=data, chunks=(5, 2), maxshape=(53, None))
    file.create_dataset("room_to_grow", data=data, chunks=(5, 2), maxshape=(500, 9))
    file.create_dataset("one_chunk", data=data, chunks=(53, 6))
    file.create_dataset("one_packed_chunk", data=data, chunks=(53, 6), compression="gzip", shuffle=True)
    for name, extra in (("holes", {}), ("packed_holes", {"compression": "gzip"}), ("growing_holes", {"maxshape": (None, 6)})):
        holes = file.create_dataset(name, (60, 6), "<f4", chunks=(5, 2), fillvalue=2.5, **extra)
        holes[17:23, 1:4] = data[:6, :3]
    file.create_dataset("never_written", (9, 3), "<i2", fillvalue=-3)
    file.create_dataset("never_chunked", (9, 3), "<i2", chunks=(2, 2), fillvalue=-3)
    many = np.arange(5000 * 3, dtype="<i4").reshape(5000, 3)
    file.create_dataset("many", data=many, chunks=(1, 3))
    file.create_dataset("many_packed", data=many, chunks=(1, 3), compression="gzip", compression_opts=1)
    file.create_dataset("many_growing", data=many, chunks=(1, 2), maxshape=(None, 3))
    # Chunks that were stored without some of their filters: bit 0 shuffle, bit 1 gzip.
    partly = file.create_dataset("partly_filtered", data=many[:12], chunks=(4, 3), compression="gzip", shuffle=True)
    partly.id.write_direct_chunk((0, 0), many[100:104].tobytes(), 3)
    partly.id.write_direct_chunk((4, 0), many[104:108].view("u1").reshape(12, 4).T.tobytes(), 2)
    file.create_dataset("shrunk", data=data, chunks=(5, 2), maxshape=(None, 6))
    file["shrunk"].resize((31, 6))
    early = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    early.set_chunk((5, 2))
    early.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
    space = h5py.h5s.create_simple((53, 6), (60, 8))
    h5py.Dataset(h5py.h5d.create(file.id, b"early", h5py.h5t.IEEE_F32LE, space, early))[:] = data
    if latest:
        file.create_dataset("paged", data=np.arange(150000, dtype="<u2"), chunks=(1,), maxshape=(None,))
    file.create_group("inner").create_dataset("deep", data=data)
    file["text"] = "no numbers"
    file["scalar"] = np.float32(1.5)
    file.attrs["config_json"] = '{"name": "Stra\u00dfe"}'
    file.attrs["fixed"] = np.bytes_("fixed text")
    file.attrs["rate"] = 4096
    file.attrs["scale"] = 0.25
    file.attrs["list"] = [1, 2, 3]


def main():
    folder = pathlib.Path(sys.argv[1])
    for name, options in (("old", {}), ("new", {"libver": "latest"}), ("block", {"userblock_size": 1024})):
        path = folder / f"{name}.h5"
        with h5py.File(path, "w", **options) as file:
            add_all(file, name == "new")
        with h5py.File(path, "r") as file:
            def keep(key, item):
                if isinstance(item, h5py.Dataset) and item.dtype.kind in "fiu" and item.shape:
                    little = item[:].astype(item.dtype.newbyteorder("<"))
                    (folder / f"{name}.{key.replace('/', '-')}.bin").write_bytes(little.tobytes())
            file.visititems(keep)


main()
