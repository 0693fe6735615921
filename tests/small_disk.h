#pragma once
#include <fcntl.h>
#include <sys/mount.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "temporary_folder.h"

namespace millrace::test {

/// A file system of its own with little room, where this process may mount one (root); gone with the object.
class SmallDisk {
public:
    explicit SmallDisk(std::size_t bytes) {
        const std::string options = "size=" + std::to_string(bytes);
        mounted_ = ::mount("none", folder_.path().c_str(), "tmpfs", 0, options.c_str()) == 0;
    }
    ~SmallDisk() {
        if (mounted_) ::umount2(folder_.path().c_str(), MNT_DETACH);
    }
    SmallDisk(const SmallDisk&) = delete;
    SmallDisk& operator=(const SmallDisk&) = delete;

    [[nodiscard]] bool mounted() const { return mounted_; }
    [[nodiscard]] const std::filesystem::path& path() const { return folder_.path(); }

    /// Takes all the room that is left, and gives it back.
    void fill() const {
        const int file = ::open(filler().c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
        const std::vector<char> bytes(std::size_t{1} << 20);
        for (const std::size_t size : {bytes.size(), std::size_t{512}})
            while (::write(file, bytes.data(), size) > 0) {
            }
        ::close(file);
    }
    void release() const { std::filesystem::remove(filler()); }

private:
    [[nodiscard]] std::filesystem::path filler() const { return folder_ / "filler"; }

    TemporaryFolder folder_;
    bool mounted_ = false;
};

}  // namespace millrace::test
