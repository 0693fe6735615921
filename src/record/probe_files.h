#pragma once
// The files of the probe: its library, and the folder in which it puts its mappings.

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "io/file.h"
#include "record/probe_reader.h"

namespace millrace::record {

/// The absolute path of `path`. An error (exit status 2) unless it is a shared library for this machine's architecture with the
/// probe's entry point; nothing of it is executed.
base::Result<std::string> check_probe_library(const io::Path& path);

/// The probe (libmillrace-probe.so) in `folder`, ../lib, ../lib/millrace or .. as seen from there. An error has exit status 3.
base::Result<std::string> find_probe_library(const io::Path& folder);
/// The same for the folder of this program.
base::Result<std::string> find_probe_library();

/// The private folder in which probes put their mappings (MILLRACE_PROBE_DIR); removed with everything in it at the end.
class ProbeFolder {
public:
    /// In memory (/dev/shm) when that is there and has room, else in `fallback`; an error has exit status 3. Removes what
    /// recordings that were killed left there.
    static base::Result<ProbeFolder> create(const io::Path& fallback);
    ProbeFolder(ProbeFolder&& other) noexcept : path_(std::exchange(other.path_, io::Path{})), lock_(std::move(other.lock_)) {}
    ProbeFolder& operator=(ProbeFolder&&) = delete;
    ~ProbeFolder();

    [[nodiscard]] const io::Path& path() const { return path_; }

    struct Found {
        ProbeReader reader;
        io::Path path;
        std::uint32_t pid = 0;          ///< by our count: the name has the process's own (process_numbers.h)
        std::uint16_t incarnation = 0;  ///< how many mappings this process had before
    };
    /// Mappings (PID.probe, and PID-1.probe once the process executes another program) that were not handed out before.
    std::vector<Found> look();
    /// Everything of it was read: removes the file.
    static void remove(const io::Path& mapping);

private:
    explicit ProbeFolder(io::Path path) : path_(std::move(path)) {}
    io::Path path_;
    io::FileDescriptor lock_;                       ///< says to others that the folder is in use
    std::set<std::string> known_;                   ///< names handed out
    std::map<std::uint32_t, std::uint16_t> times_;  ///< by process
};

}  // namespace millrace::record
