#include "probed_program.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>
#include <thread>

#include "places.h"

namespace millrace::probe {
namespace {

using record::Record;
using record::RecordKind;

std::uint64_t now() {
    timespec at;
    ::clock_gettime(CLOCK_MONOTONIC, &at);
    return static_cast<std::uint64_t>(at.tv_sec) * 1'000'000'000u + static_cast<std::uint64_t>(at.tv_nsec);
}

template <class Condition>
bool wait_for(double seconds, Condition condition) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
    while (!condition()) {
        if (std::chrono::steady_clock::now() > end) return false;
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    return true;
}

}  // namespace

std::filesystem::path build_folder() { return testing::program_folder(); }

std::string interpreter() {
    if (const char* given = std::getenv("MILLRACE_TEST_PYTHON")) return given;
    // What "python3" starts may be a script that looks for the interpreter; the interpreter itself starts faster.
    static const std::string found = [] {
        std::FILE* output = ::popen("python3 -c 'import ctypes, sys; print(sys.executable)' 2>/dev/null", "r");
        char text[4096] = "";
        if (output == nullptr || std::fgets(text, sizeof text, output) == nullptr) text[0] = 0;
        if (output != nullptr) ::pclose(output);
        return std::string(text, std::strcspn(text, "\n"));
    }();
    return found;
}

int exit_status(int status) { return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status); }

std::vector<std::string> drive(const std::vector<std::string>& words) {
    std::vector<std::string> all{interpreter(), (testing::source_root() / "tests/probe/drive.py").string()};
    all.push_back((build_folder() / "mock_cuda/libcuda.so.1").string());
    all.insert(all.end(), words.begin(), words.end());
    return all;
}

ProbedProgram::ProbedProgram(const std::vector<std::string>& words, const Environment& environment) {
    Environment all{{"CUDA_INJECTION64_PATH", (build_folder() / "libmillrace-probe.so").string()},
                    {"MILLRACE_CUPTI", (build_folder() / "libmock_cupti.so").string()},
                    {"MILLRACE_PROBE_DIR", folder_.path().string()}};
    for (const auto& [name, value] : environment) all[name] = value;
    int in[2], out[2];
    if (::pipe2(in, O_CLOEXEC) != 0 || ::pipe2(out, O_CLOEXEC) != 0) return;
    const std::string error_file = folder_ / "errors";
    ::signal(SIGPIPE, SIG_IGN);  // a program that died is a failed test, not a dead one
    child_ = ::fork();
    if (child_ == 0) {
        ::signal(SIGPIPE, SIG_DFL);
        ::dup2(in[0], 0);
        ::dup2(out[1], 1);
        ::dup2(::open(error_file.c_str(), O_WRONLY | O_CREAT, 0600), 2);
        for (const auto& [name, value] : all) value == "-" ? ::unsetenv(name.c_str()) : ::setenv(name.c_str(), value.c_str(), 1);
        std::vector<char*> arguments;
        for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
        arguments.push_back(nullptr);
        ::execvp(arguments[0], arguments.data());
        ::_exit(127);
    }
    ::close(in[0]);
    ::close(out[1]);
    input_ = in[1];
    output_ = out[0];
}

ProbedProgram::~ProbedProgram() {
    if (input_ >= 0) ::close(input_);
    if (output_ >= 0) ::close(output_);
    if (child_ > 0 && !waited_) {
        ::kill(child_, SIGKILL);
        ::waitpid(child_, nullptr, 0);
    }
    if (header_ != nullptr) ::munmap(header_, record::kMappingBytes);
}

std::vector<std::filesystem::path> ProbedProgram::mappings() const {
    std::vector<std::filesystem::path> found;
    for (const auto& entry : std::filesystem::directory_iterator(folder_.path()))
        if (entry.path().extension() == ".probe") found.push_back(entry.path());
    return found;
}

bool ProbedProgram::attach(double seconds) {
    const std::string path = folder_ / (std::to_string(child_) + ".probe");
    std::error_code failed;
    if (!wait_for(seconds, [&] { return std::filesystem::file_size(path, failed) == record::kMappingBytes && !failed; }))
        return false;
    const int file = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
    void* memory = ::mmap(nullptr, record::kMappingBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    ::close(file);
    if (memory == MAP_FAILED) return false;
    header_ = static_cast<record::ProbeHeader*>(memory);
    beat();
    return wait_for(seconds, [&] { return header_->state.magic.load() == record::kProbeMagic; });
}

void ProbedProgram::beat() { header_->control.keeper_time.store(now()); }

bool ProbedProgram::command(record::ProbeMode mode, record::CallKind pulse, std::uint32_t full_calls, std::uint32_t sites_calls) {
    record::ProbeControl& control = header_->control;
    beat();
    control.mode.store(static_cast<std::uint32_t>(mode));
    control.pulse_call.store(static_cast<std::uint32_t>(pulse));
    control.full_calls.store(full_calls);
    control.sites_calls.store(sites_calls);
    const std::uint32_t epoch = control.epoch.fetch_add(1) + 1;
    return wait_for(20, [&] {
        beat();
        return header_->state.epoch.load() == epoch;
    });
}

void ProbedProgram::say(const std::string& line) {
    const std::string text = line + "\n";
    if (::write(input_, text.data(), text.size()) != static_cast<ssize_t>(text.size()))
        ADD_FAILURE() << "the program does not listen";
}

std::string ProbedProgram::hear() {
    for (;;) {
        if (const auto end = heard_.find('\n'); end != std::string::npos) {
            std::string line = heard_.substr(0, end);
            heard_.erase(0, end + 1);
            return line;
        }
        pollfd ready{output_, POLLIN, 0};
        int patience = 600;  // a minute; a machine may have much else to do
        while (patience > 0 && ::poll(&ready, 1, 100) == 0) {
            --patience;
            if (header_ != nullptr) beat();
        }
        if (patience == 0) {
            ADD_FAILURE() << "the program is silent";
            return "";
        }
        char bytes[4096];
        const ssize_t size = ::read(output_, bytes, sizeof bytes);
        if (size <= 0) return "";
        heard_.append(bytes, static_cast<std::size_t>(size));
        if (header_ != nullptr) beat();
    }
}

std::string ProbedProgram::ask(const std::string& line) {
    say(line);
    return hear();
}

int ProbedProgram::finish() {
    if (input_ >= 0) ::close(input_);
    input_ = -1;
    for (std::string line = hear(); !line.empty(); line = hear()) rest += line + "\n";
    int status = -1;
    ::waitpid(child_, &status, 0);
    waited_ = true;
    std::ifstream file(folder_ / "errors");
    std::ostringstream text;
    text << file.rdbuf();
    errors = text.str();
    return status;
}

void ProbedProgram::signal(int number) const { ::kill(child_, number); }

void ProbedProgram::drain() {
    for (std::uint32_t lane = 0; lane < record::kLanes; ++lane) {
        record::ProbeLane& ring = header_->lanes[lane];
        const auto* slots = reinterpret_cast<const Record*>(reinterpret_cast<const char*>(header_) + record::kHeaderBytes) +
                            std::uint64_t{lane} * record::kLaneSlots;
        std::vector<Record> taken;
        const std::uint64_t written = ring.written.load(std::memory_order_acquire);
        std::uint64_t read = ring.read.load();
        ASSERT_LE(written - read, record::kLaneSlots);
        for (; read < written; ++read) taken.push_back(slots[read % record::kLaneSlots]);
        ring.read.store(read, std::memory_order_release);
        take(taken);
    }
}

void ProbedProgram::wait_for_work(std::size_t count) {
    for (int tries = 0; tries < 2000 && of_kind(RecordKind::kWork).size() < count; ++tries) {
        beat();
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
        drain();
    }
}

void ProbedProgram::take(const std::vector<Record>& slots) {
    for (std::size_t i = 0; i < slots.size();) {
        const Record& head = slots[i];
        std::size_t parts = 0;
        if (head.kind == RecordKind::kText) parts = (head.bytes + sizeof(Record) - 1) / sizeof(Record);
        if (head.kind == RecordKind::kSite || head.kind == RecordKind::kArguments) parts = (head.count + 3u) / 4;
        ASSERT_LE(i + 1 + parts, slots.size()) << "parts are missing";
        const auto* bytes = reinterpret_cast<const char*>(slots.data() + i + 1);
        if (head.kind == RecordKind::kText) {
            EXPECT_EQ(texts.count(head.id), 0u) << "a number twice";
            texts[head.id] = std::string(bytes, head.bytes);
        } else if (head.kind == RecordKind::kSite) {
            EXPECT_EQ(sites_.count(head.id), 0u) << "a number twice";
            sites_[head.id].resize(head.count);
            std::memcpy(sites_[head.id].data(), bytes, head.count * sizeof(record::SiteFrame));
        } else {
            Entry entry{head, {}};
            if (head.kind == RecordKind::kArguments) {
                entry.arguments.resize(head.count);
                std::memcpy(entry.arguments.data(), bytes, head.count * sizeof(record::Argument));
            }
            entries.push_back(entry);
        }
        i += 1 + parts;
    }
}

std::vector<Frame> ProbedProgram::site(std::uint32_t number) const {
    std::vector<Frame> frames;
    const auto text = [&](std::uint32_t id) { return texts.count(id) > 0 ? texts.at(id) : std::string("?"); };
    if (sites_.count(number) == 0) return frames;
    for (const record::SiteFrame& frame : sites_.at(number))
        frames.push_back({text(frame.file), text(frame.function), frame.line, frame.native != 0});
    return frames;
}

std::vector<Entry> ProbedProgram::of_kind(RecordKind kind) const {
    std::vector<Entry> found;
    for (const Entry& entry : entries)
        if (entry.record.kind == kind) found.push_back(entry);
    return found;
}

std::vector<Entry> ProbedProgram::calls(record::CallKind kind) const {
    std::vector<Entry> found;
    for (const Entry& entry : of_kind(RecordKind::kCall))
        if (entry.record.what == static_cast<std::uint8_t>(kind)) found.push_back(entry);
    return found;
}

std::uint64_t ProbedProgram::lost() const {
    std::uint64_t all = 0;
    for (const record::ProbeLane& lane : header_->lanes) all += lane.lost.load();
    return all;
}

}  // namespace millrace::probe
