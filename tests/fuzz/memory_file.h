#pragma once
// Where a fuzz target puts its input when what it tests reads a file: in memory where there is such a place. One per process.

#include <unistd.h>

#include <filesystem>
#include <string>

namespace millrace::fuzz {

struct MemoryFile {
    explicit MemoryFile(const std::string& name) {
        std::error_code failed;
        const bool memory = std::filesystem::is_directory("/dev/shm", failed);
        path = (memory ? "/dev/shm" : std::filesystem::temp_directory_path()) /
               ("millrace-fuzz-" + name + "-" + std::to_string(::getpid()));
    }
    MemoryFile(const MemoryFile&) = delete;
    MemoryFile& operator=(const MemoryFile&) = delete;
    ~MemoryFile() {
        std::error_code ignored;
        std::filesystem::remove(path, ignored);
    }
    std::filesystem::path path;
};

}  // namespace millrace::fuzz
