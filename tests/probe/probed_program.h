#pragma once
// A program under the probe, with the stand-ins for CUDA and CUPTI, and its mapping as `millrace record` would read it.

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "record/probe_mapping.h"
#include "temporary_folder.h"

namespace millrace::probe {

struct Frame {
    std::string file, function;
    std::uint32_t line = 0;
    bool native = false;
    bool operator==(const Frame&) const = default;
};

struct Entry {
    record::Record record;
    std::vector<record::Argument> arguments;
};

class ProbedProgram {
public:
    /// Environment variables for the program, besides those of the probe; a value "-" takes a variable away.
    using Environment = std::map<std::string, std::string>;

    /// Starts `words`; its standard input and output are pipes to here.
    explicit ProbedProgram(const std::vector<std::string>& words, const Environment& environment = {});
    ~ProbedProgram();
    ProbedProgram(const ProbedProgram&) = delete;
    ProbedProgram& operator=(const ProbedProgram&) = delete;

    /// Waits for the mapping to be there and valid; false after `seconds`.
    bool attach(double seconds = 30);
    [[nodiscard]] record::ProbeHeader& header() const { return *header_; }
    /// Gives control words and waits until they are obeyed.
    bool command(record::ProbeMode mode, record::CallKind pulse = record::CallKind::kOther, std::uint32_t full_calls = 0,
                 std::uint32_t sites_calls = 0);
    /// Shows that somebody reads.
    void beat();

    void say(const std::string& line);
    /// The next line of the program's output, without its end; empty at the end of the output.
    std::string hear();
    /// Says a line and waits for the answer.
    std::string ask(const std::string& line);
    /// Closes the input, reads the rest of the output and waits; the status as wait gives it.
    int finish();
    void signal(int number) const;
    [[nodiscard]] pid_t pid() const { return child_; }

    /// Takes everything out of all lanes.
    void drain();
    /// Drains until there are `count` records of device work: they arrive with a flush, some time after their window.
    void wait_for_work(std::size_t count);
    std::vector<Entry> entries;  ///< everything but texts and sites, lane by lane
    std::map<std::uint32_t, std::string> texts;
    [[nodiscard]] std::vector<Frame> site(std::uint32_t number) const;
    [[nodiscard]] bool has_site(std::uint32_t number) const { return sites_.count(number) > 0; }
    [[nodiscard]] std::vector<Entry> of_kind(record::RecordKind kind) const;
    [[nodiscard]] std::vector<Entry> calls(record::CallKind kind) const;
    [[nodiscard]] std::uint64_t lost() const;
    [[nodiscard]] std::vector<std::filesystem::path> mappings() const;
    std::string rest;    ///< output after the last line heard, from finish()
    std::string errors;  ///< what the program wrote to its standard error, from finish()

private:
    void take(const std::vector<record::Record>& slots);

    test::TemporaryFolder folder_;
    pid_t child_ = -1;
    int input_ = -1, output_ = -1;
    bool waited_ = false;
    std::string heard_;
    record::ProbeHeader* header_ = nullptr;
    std::map<std::uint32_t, std::vector<record::SiteFrame>> sites_;
};

/// The folder with the libraries under test.
std::filesystem::path build_folder();
/// A Python interpreter, or empty.
std::string interpreter();
/// The status of a program that exited; below zero the signal that ended it.
int exit_status(int status);
/// Words that start tests/probe/drive.py.
std::vector<std::string> drive(const std::vector<std::string>& words = {});

}  // namespace millrace::probe
