#include "cli/child.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <iterator>

#include "places.h"

namespace millrace::cli {
namespace {

std::string content(const std::string& path) {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
}

void redirect(const std::string& path, int descriptor) {
    const int file = open(path.c_str(), O_CREAT | O_TRUNC | O_WRONLY, 0644);
    if (file < 0 || dup2(file, descriptor) < 0) _exit(127);
}

}  // namespace

Child::Child(const std::string& folder, const std::vector<std::string>& arguments, const ChildOptions& options) {
    static std::atomic<int> number{0};
    const std::string name = folder + "/said-" + std::to_string(++number);
    out_ = name + ".out";
    err_ = name + ".err";
    std::vector<std::string> words{options.program.empty() ? (testing::program_folder() / "millrace").string() : options.program};
    words.insert(words.end(), arguments.begin(), arguments.end());
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    pid_ = fork();
    if (pid_ != 0) return;
    redirect(options.out.empty() ? out_ : options.out, STDOUT_FILENO);
    redirect(err_, STDERR_FILENO);
    for (const std::string& variable : options.environment) putenv(const_cast<char*>(variable.c_str()));
    for (const int signal : {SIGHUP, SIGPIPE, SIGXFSZ}) std::signal(signal, SIG_DFL);  // whatever runs the tests
    if (options.close_out) close(STDOUT_FILENO);
    if (int ends[2]; options.reader_left && pipe(ends) == 0) {
        close(ends[0]);
        dup2(ends[1], STDOUT_FILENO);
    }
    if (options.file_size > 0) {
        const rlimit limit{options.file_size, options.file_size};
        setrlimit(RLIMIT_FSIZE, &limit);
    }
    execv(argv[0], argv.data());
    _exit(127);
}

Child::~Child() {
    if (running()) {
        send(SIGKILL);
        collect(0);
    }
}

void Child::collect(int flags) {
    if (!ended_ && waitpid(pid_, &raw_status_, flags) == pid_) ended_ = true;
}

void Child::send(int signal) const { kill(pid_, signal); }

bool Child::running() {
    collect(WNOHANG);
    return !ended_;
}

Said Child::wait() {
    collect(0);
    return {WIFEXITED(raw_status_) ? WEXITSTATUS(raw_status_) : 1000 + WTERMSIG(raw_status_), content(out_), content(err_)};
}

}  // namespace millrace::cli
