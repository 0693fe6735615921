#pragma once
// Lines at the end of a terminal that are drawn again and again, while the log writes above them.

#include <mutex>
#include <string>

namespace millrace::base {

/// On standard error, one at a time. Thread safe.
class LiveLines {
public:
    /// `live` false: draws nothing.
    explicit LiveLines(bool live);
    ~LiveLines();  ///< removes them

    /// Replaces them, each cut to the terminal's width: one that wraps cannot be erased. Empty: removes them.
    void draw(const std::string& lines);

private:
    [[nodiscard]] std::string erased() const;

    const bool live_;
    std::mutex mutex_;   ///< guards what follows
    std::string lines_;  ///< on the terminal now
};

}  // namespace millrace::base
