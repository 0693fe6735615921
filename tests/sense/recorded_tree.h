#pragma once
// A copy of a recorded machine (tests/sense/proc/<name>/{proc,sys}) that a test may change between two readings.

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "places.h"
#include "temporary_folder.h"

namespace millrace::sense {

class RecordedTree {
public:
    explicit RecordedTree(const std::string& name) {
        std::filesystem::copy(testing::source_root() / "tests/sense/proc" / name, folder_.path(),
                              std::filesystem::copy_options::recursive);
    }
    [[nodiscard]] std::string proc() const { return (folder_ / "proc").string(); }
    [[nodiscard]] std::string sys() const { return (folder_ / "sys").string(); }

    /// Overwrites in place, as the kernel does: open descriptors see the new text.
    void write(const std::string& path, const std::string& text) const {
        std::filesystem::create_directories((folder_ / path).parent_path());
        std::ofstream(folder_ / path, std::ios::trunc) << text;
    }
    /// Open descriptors read nothing any more. (The kernel answers them with an error.)
    void remove(const std::string& path) const {
        for (const auto& entry : std::filesystem::recursive_directory_iterator((folder_ / path).parent_path()))
            if (entry.is_regular_file() && entry.path().string().starts_with((folder_ / path).string()))
                std::filesystem::resize_file(entry.path(), 0);
        std::filesystem::remove_all(folder_ / path);
    }

    struct Process {
        int pid = 0, parent = 0;
        int user = 0, system = 0, waited = 0;
        int threads = 1, started = 1000, pages = 10;
        char state = 'S';
    };
    void write_process(const Process& process) const {
        write(fmt::format("proc/{}/stat", process.pid),
              fmt::format("{0} (name) {1} {2} 1 1 0 -1 0 0 0 0 0 {3} {4} {5} 0 20 0 {6} 0 {7} 100 {8} 0 0\n", process.pid,
                          process.state, process.parent, process.user, process.system, process.waited, process.threads,
                          process.started, process.pages));
    }
    void write_io(int pid, long requested, long fetched, long written) const {
        write(fmt::format("proc/{}/io", pid),
              fmt::format("rchar: {}\nwchar: 0\nread_bytes: {}\nwrite_bytes: {}\n", requested, fetched, written));
    }

private:
    test::TemporaryFolder folder_;
};

}  // namespace millrace::sense
