// libFuzzer over the chunk indexes and chunks of HDF5 files: `make fuzz`.

#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>

#include "fuzz/hdf5_target.h"

namespace {

/// In memory where there is such a place.
std::filesystem::path new_file() {
    std::error_code failed;
    const bool memory = std::filesystem::is_directory("/dev/shm", failed);
    return (memory ? "/dev/shm" : std::filesystem::temp_directory_path()) / ("millrace-fuzz-hdf5-" + std::to_string(::getpid()));
}

struct File {
    std::filesystem::path path = new_file();
    ~File() {
        std::error_code ignored;
        std::filesystem::remove(path, ignored);
    }
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    static const File file;
    millrace::fuzz::read_hdf5_bytes({reinterpret_cast<const char*>(data), size}, file.path);
    return 0;
}
