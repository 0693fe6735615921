#pragma once
// Ranks of comm_rank_program under the real mpirun, with what they print.

#include <gtest/gtest.h>
#include <sys/wait.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <string>

#include "places.h"

namespace millrace::testing {

inline std::string rank_program() { return (program_folder() / "comm_rank_program").string(); }

/// A reason not to run, or nothing.
inline std::string no_mpi() {
    if (std::system("command -v mpirun > /dev/null 2>&1") != 0) return "no mpirun: tools/setup --mpi";
    if (!std::filesystem::exists(program_folder() / "libmillrace-mpi.so")) return "built without Open MPI: tools/setup --mpi";
    return {};
}

class Started {
public:
    /// A limit in seconds ends what hangs, with status 124.
    Started(int ranks, const std::string& what, const std::string& environment = {}, int limit = 60) {
        const std::string command = "env " + environment + " timeout -k 5 " + std::to_string(limit) +
                                    " mpirun --allow-run-as-root --oversubscribe -n " + std::to_string(ranks) + " " +
                                    rank_program() + " " + what + " 2>&1";
        output_ = popen(command.c_str(), "r");
    }
    ~Started() {
        if (output_ != nullptr) wait();
    }
    Started(const Started&) = delete;
    Started& operator=(const Started&) = delete;

    /// The next line of all ranks' output; empty at the end.
    std::string line() {
        char buffer[4096] = "";
        if (std::fgets(buffer, sizeof buffer, output_) == nullptr) return {};
        text_ += buffer;
        return buffer;
    }
    /// Process ids by rank, as `endless` prints them.
    std::map<int, pid_t> processes(std::size_t ranks) {
        std::map<int, pid_t> found;
        for (std::string next = line(); found.size() < ranks && !next.empty(); next = found.size() < ranks ? line() : next) {
            int rank = 0;
            int process = 0;
            if (std::sscanf(next.c_str(), "rank %d is process %d", &rank, &process) == 2) found[rank] = process;
        }
        return found;
    }
    /// The exit status of mpirun.
    int wait() {
        while (!line().empty()) continue;
        const int status = pclose(output_);
        output_ = nullptr;
        return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    }
    [[nodiscard]] const std::string& text() const { return text_; }

private:
    FILE* output_ = nullptr;
    std::string text_;
};

inline std::size_t count_of(const std::string& text, const std::string& part) {
    std::size_t found = 0;
    for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
    return found;
}

}  // namespace millrace::testing
