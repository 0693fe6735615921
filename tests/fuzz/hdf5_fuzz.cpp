// libFuzzer over the chunk indexes and chunks of HDF5 files: `make fuzz`.

#include <cstddef>
#include <cstdint>

#include "fuzz/hdf5_target.h"
#include "fuzz/memory_file.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    static const millrace::fuzz::MemoryFile file("hdf5");
    millrace::fuzz::read_hdf5_bytes({reinterpret_cast<const char*>(data), size}, file.path);
    return 0;
}
