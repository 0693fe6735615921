// libFuzzer over the reader of recordings: `make fuzz`.

#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>

#include "fuzz/recording_target.h"

namespace {

/// In memory where there is such a place: every input is a folder of files.
std::filesystem::path new_folder() {
    std::error_code failed;
    const bool memory = std::filesystem::is_directory("/dev/shm", failed);
    std::filesystem::path folder =
        (memory ? "/dev/shm" : std::filesystem::temp_directory_path()) / ("millrace-fuzz-" + std::to_string(::getpid()));
    std::filesystem::create_directories(folder);
    return folder;
}

struct Folder {
    std::filesystem::path path = new_folder();
    ~Folder() {
        std::error_code ignored;
        std::filesystem::remove_all(path, ignored);
    }
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    static const Folder folder;
    millrace::fuzz::read_recording_bytes({reinterpret_cast<const char*>(data), size}, folder.path);
    return 0;
}
