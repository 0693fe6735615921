#pragma once
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <sstream>
#include <string>
#include <vector>

namespace millrace::test {

/// Takes what is written to stderr, the log's lines among it, for as long as it lives. May be read at any time.
class CapturedLog {
public:
    CapturedLog() : file_(std::tmpfile()), stderr_(::dup(STDERR_FILENO)) {
        if (file_ == nullptr || ::dup2(::fileno(file_), STDERR_FILENO) < 0) ADD_FAILURE() << "stderr cannot be captured";
    }
    ~CapturedLog() {
        ::dup2(stderr_, STDERR_FILENO);
        ::close(stderr_);
        if (::testing::Test::HasFailure()) std::fputs(text().c_str(), stderr);
        if (file_ != nullptr) std::fclose(file_);
    }
    CapturedLog(const CapturedLog&) = delete;
    CapturedLog& operator=(const CapturedLog&) = delete;

    [[nodiscard]] std::string text() const {
        std::string text;
        char piece[4096];
        const int file = ::fileno(file_);
        // Not the stream's own position: writers share that.
        for (ssize_t got = 0; (got = ::pread(file, piece, sizeof piece, begin_ + static_cast<off_t>(text.size()))) > 0;)
            text.append(piece, static_cast<std::size_t>(got));
        return text;
    }
    /// Forgets what was written so far.
    void clear() { begin_ += static_cast<off_t>(text().size()); }
    [[nodiscard]] std::vector<std::string> lines() const {
        std::vector<std::string> lines;
        std::istringstream all(text());
        for (std::string line; std::getline(all, line);) lines.push_back(line);
        return lines;
    }

private:
    std::FILE* file_;
    int stderr_;
    off_t begin_ = 0;
};

}  // namespace millrace::test
