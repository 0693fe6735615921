#pragma once
// Runs the binary as a user does and keeps what it said.

#include <sys/types.h>

#include <string>
#include <vector>

namespace millrace::cli {

struct Said {
    int status = 0;  ///< exit status; 1000 + n when signal n ended the process
    std::string out, err;
};

/// Limits set in the child before it starts.
struct ChildOptions {
    std::size_t file_size = 0;             ///< largest file it may write, 0: any
    std::vector<std::string> environment;  ///< "NAME=value", or "NAME" to take it away
    std::string out;                       ///< where standard output goes unless empty
    bool close_out = false;                ///< start without a standard output
    bool reader_left = false;              ///< standard output is a pipe that nobody reads
    std::string program = {};              ///< started instead of the built millrace unless empty
};

/// A started `millrace`; output goes to files in `folder`.
class Child {
public:
    Child(const std::string& folder, const std::vector<std::string>& arguments, const ChildOptions& options = {});
    ~Child();  ///< kills it if it still runs
    Child(const Child&) = delete;
    Child& operator=(const Child&) = delete;

    void send(int signal) const;
    [[nodiscard]] pid_t pid() const { return pid_; }
    [[nodiscard]] bool running();
    Said wait();

private:
    void collect(int flags);

    pid_t pid_ = -1;
    bool ended_ = false;
    int raw_status_ = 0;
    std::string out_, err_;
};

inline Said run(const std::string& folder, const std::vector<std::string>& arguments, const ChildOptions& options = {}) {
    return Child(folder, arguments, options).wait();
}

}  // namespace millrace::cli
