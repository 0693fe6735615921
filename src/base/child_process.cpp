#include "base/child_process.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>

#include "base/split.h"

namespace millrace::base {
namespace {

/// What keeps `path` from being executed: 0 nothing, else an errno.
int obstacle(const std::string& path) {
    struct stat info {};
    if (stat(path.c_str(), &info) != 0) return errno;
    if (S_ISDIR(info.st_mode)) return EISDIR;
    return access(path.c_str(), X_OK) == 0 ? 0 : errno;
}

bool is_missing(int number) { return number == ENOENT || number == ENOTDIR; }

Error not_started(const std::string& program, int number) {
    if (is_missing(number)) return Error{"no such file; the command was not started", program, kCommandNotFound};
    if (number == ENOEXEC)
        return Error{"is neither a program for this machine nor a script that begins with #!", program, kCommandNotExecutable};
    if (number == EISDIR) return Error{"is a folder, not a command", program, kCommandNotExecutable};
    return Error{std::string("cannot be executed: ") + std::strerror(number), program, kCommandNotExecutable};
}

void close_if_open(int& descriptor) {
    if (descriptor >= 0) close(descriptor);
    descriptor = -1;
}

void reset_signals() {
    // SIGCHLD: a parent that ignores it would have its children's exit statuses thrown away, and the command's too.
    for (const int number : {SIGPIPE, SIGXFSZ, SIGCHLD}) std::signal(number, SIG_DFL);
    sigset_t none;
    sigemptyset(&none);
    pthread_sigmask(SIG_SETMASK, &none, nullptr);
}

/// The child's life until it is the command. Only calls that are safe after a fork.
[[noreturn]] void become(const char* program, char* const* argv, int parent, const ChildOptions& options) {
    char released = 0;
    ssize_t count = 0;
    while ((count = read(parent, &released, 1)) < 0 && errno == EINTR) {
    }
    if (count != 1) _exit(kCommandNotFound);  // the parent is gone or destroyed us unreleased
    if (options.out >= 0) dup2(options.out, STDOUT_FILENO);
    if (options.err >= 0) dup2(options.err, STDERR_FILENO);
    reset_signals();
    execv(program, argv);
    const int number = errno;
    (void)send(parent, &number, sizeof number, MSG_NOSIGNAL);
    _exit(kCommandNotFound);
}

}  // namespace

Result<std::string> find_program(const std::string& name, const std::string& path) {
    if (name.empty()) return Error{"the command is empty", {}, kCommandNotFound};
    if (name.find('/') != std::string::npos) {
        const int number = obstacle(name);
        if (number != 0) return not_started(name, number);
        return name;
    }
    int worst = 0;
    std::string refused;
    for (const std::string& folder : split(path, ':')) {
        const std::string file = folder.empty() ? "./" + name : folder + "/" + name;
        const int number = obstacle(file);
        if (number == 0) return file;
        if (!is_missing(number) && worst == 0) {
            worst = number;
            refused = file;
        }
    }
    if (worst != 0) return not_started(refused, worst);
    return Error{"command not found in PATH", name, kCommandNotFound};
}

Result<ChildProcess> ChildProcess::prepare(const std::vector<std::string>& command, const ChildOptions& options) {
    if (command.empty()) return Error{"no command was given", {}, kCommandNotFound};
    const char* path = std::getenv("PATH");
    ChildProcess child;
    MILLRACE_SET(child.program_, find_program(command.front(), path != nullptr ? path : "/bin:/usr/bin"));
    std::vector<std::string> words = command;
    std::vector<char*> argv;
    argv.reserve(words.size() + 1);
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);

    std::signal(SIGCHLD, SIG_DFL);
    // Sockets rather than a pipe: writing to a child that is gone is an error here, not a signal.
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
        return Error{std::string("no connection to the command: ") + std::strerror(errno)};
    child.gate_ = ends[0];
    child.pid_ = fork();
    if (child.pid_ == 0) {
        close(ends[0]);  // or the end of our parent would never show
        become(child.program_.c_str(), argv.data(), ends[1], options);
    }
    const int number = errno;
    close(ends[1]);
    if (child.pid_ < 0) return Error{std::string("no process for the command: ") + std::strerror(number)};
    return child;
}

ChildProcess& ChildProcess::operator=(ChildProcess&& other) noexcept {
    if (this == &other) return *this;
    abandon();
    pid_ = std::exchange(other.pid_, -1);
    gate_ = std::exchange(other.gate_, -1);
    program_ = std::move(other.program_);
    status_ = std::exchange(other.status_, std::nullopt);
    ended_by_signal_ = std::exchange(other.ended_by_signal_, false);
    return *this;
}

ChildProcess::~ChildProcess() { abandon(); }

void ChildProcess::abandon() {
    const bool held = gate_ >= 0 && pid_ > 0;
    close_if_open(gate_);
    if (held) collect(0);
}

Status ChildProcess::release() {
    MILLRACE_ASSERT(gate_ >= 0, "released once");
    const char byte = 1;
    (void)::send(gate_, &byte, 1, MSG_NOSIGNAL);
    int number = 0;
    ssize_t count = 0;
    while ((count = read(gate_, &number, sizeof number)) < 0 && errno == EINTR) {
    }
    close_if_open(gate_);
    if (count != static_cast<ssize_t>(sizeof number)) return ok();  // closed by exec: the command runs
    collect(0);
    if (is_missing(number))  // the file itself was there a moment ago
        return Error{"its interpreter (the #! line or the loader it asks for) does not exist", program_, kCommandNotFound};
    return not_started(program_, number);
}

void ChildProcess::collect(int flags) {
    if (status_ || pid_ <= 0) return;
    int raw = 0;
    pid_t got = 0;
    while ((got = waitpid(pid_, &raw, flags)) < 0 && errno == EINTR) {
    }
    if (got == 0) return;
    ended_by_signal_ = got > 0 && WIFSIGNALED(raw);
    if (got < 0)
        status_ = kCommandNotFound;  // its status was collected elsewhere (a handler of SIGCHLD)
    else
        status_ = ended_by_signal_ ? 128 + WTERMSIG(raw) : WEXITSTATUS(raw);
}

std::optional<int> ChildProcess::poll() {
    collect(WNOHANG);
    return status_;
}

int ChildProcess::wait() {
    collect(0);
    return status_.value_or(kCommandNotFound);
}

void ChildProcess::send(int signal) {
    if (!poll() && pid_ > 0) kill(pid_, signal);
}

}  // namespace millrace::base
