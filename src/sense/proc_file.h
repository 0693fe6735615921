#pragma once
// Small text files of the kernel (/proc, cgroups), read again and again: the descriptor stays open, the buffer is reused.

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace millrace::sense {

class ProcFile {
public:
    /// Opened at the first read. With `keep` the descriptor stays open, which saves the path walk of each later read; a file
    /// that belongs to a process answers with an error once that process is gone, even when its number is given out again.
    explicit ProcFile(std::string path = {}, bool keep = true) : path_(std::move(path)), keep_(keep) {}
    ProcFile(ProcFile&& other) noexcept;
    ProcFile& operator=(ProcFile other) noexcept;
    ~ProcFile() { close(); }

    /// The whole text, at most 1 MiB, in `buffer` (grown as needed, never shrunk); valid until the buffer is used again. Absent
    /// when the file cannot be opened or read. An empty file gives an empty text.
    std::optional<std::string_view> read(std::string& buffer);
    [[nodiscard]] const std::string& path() const { return path_; }

private:
    void close();

    std::string path_;
    bool keep_ = true;
    int descriptor_ = -1;
};

/// Cuts the first line off `text`, without its newline. False at the end.
bool next_line(std::string_view& text, std::string_view& line);
/// Cuts the first word (anything between blanks) off `line`. Empty at the end.
std::string_view next_word(std::string_view& line);
/// All of `word` as a number; absent for anything else, overflow included.
std::optional<std::uint64_t> to_count(std::string_view word);
/// All of `word` as a finite decimal number; absent for anything else.
std::optional<double> to_number(std::string_view word);
/// The numbers from 1 on among the names in `folder`, as those of processes and threads; none where it cannot be read.
std::vector<pid_t> numbers_in(const std::string& folder);
/// The count behind `key` at the start of a line: find_count("a 1\nb 2\n", "b") is 2. A following ':' belongs to the key.
std::optional<std::uint64_t> find_count(std::string_view text, std::string_view key);

}  // namespace millrace::sense
