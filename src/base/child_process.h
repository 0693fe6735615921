#pragma once
// A command that runs beside us in the same terminal: it has our standard input, output and error and our process group, so
// Ctrl-C reaches it without our help.

#include <sys/types.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"

namespace millrace::base {

struct ChildOptions {
    int out = -1, err = -1;  ///< descriptors that its standard output and error go to; -1: ours
};

/// Exit statuses of a command that could not be started, as shells give them.
constexpr int kCommandNotFound = 127, kCommandNotExecutable = 126;

/// The file that running `name` would execute: itself when it holds a slash, else the first executable file of that name in
/// `path` (the value of PATH). An error carries kCommandNotFound or kCommandNotExecutable.
Result<std::string> find_program(const std::string& name, const std::string& path);

/// Never kills the command: when this object is destroyed first, the command runs on and is not waited for.
class ChildProcess {
public:
    /// A process that waits for release() before it becomes the command, so that what watches it is ready when it begins. Call
    /// this before starting threads. A SIGCHLD that is ignored, as some parents leave it, is set to its default: exit statuses
    /// would be lost. Errors carry kCommandNotFound or kCommandNotExecutable.
    static Result<ChildProcess> prepare(const std::vector<std::string>& command, const ChildOptions& options = {});

    ChildProcess(ChildProcess&& other) noexcept { *this = std::move(other); }
    ChildProcess& operator=(ChildProcess&& other) noexcept;
    ~ChildProcess();  ///< a process that was never released ends without running anything

    [[nodiscard]] pid_t pid() const { return pid_; }

    /// Lets the command begin, with no signal blocked and the signals this program ignores for itself (SIGPIPE, SIGXFSZ) at their
    /// defaults. Fails when the file cannot be executed after all.
    Status release();
    /// The exit status once the command has ended, 128 + n when signal n ended it. Does not wait.
    std::optional<int> poll();
    /// Whether the status is that of a signal: a command may also exit with 128 or more by itself.
    [[nodiscard]] bool ended_by_signal() const { return ended_by_signal_; }
    /// Waits for it. SignalQueue with SIGCHLD and poll() wait for more than one thing at a time.
    int wait();
    /// Sends a signal unless the command has ended.
    void send(int signal);

private:
    ChildProcess() = default;
    void collect(int flags);
    void abandon();

    pid_t pid_ = -1;
    int gate_ = -1;  ///< a byte through it releases; what exec said comes back
    std::string program_;
    std::optional<int> status_;
    bool ended_by_signal_ = false;
};

}  // namespace millrace::base
