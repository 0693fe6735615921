#pragma once
// A machine whose NVML is the mock. One at a time: the library has one state.

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <initializer_list>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "places.h"
#include "sense/machine.h"

namespace millrace::sense {

/// Beside the test program, else where it was built.
inline std::string mock_library(const char* built) {
    const std::filesystem::path beside = testing::program_folder() / std::filesystem::path(built).filename();
    return std::filesystem::exists(beside) ? beside.string() : built;
}

class MockMachine {
public:
    using Settings = std::initializer_list<std::pair<const char*, const char*>>;
    /// `settings` are the variables of mock_nvml.cpp.
    explicit MockMachine(Settings settings, MachineOptions options = {}, const char* library = MILLRACE_MOCK_NVML) {
        for (const auto& [name, value] : settings) {
            ::setenv(name, value, 1);
            names_.emplace_back(name);
        }
        options.nvml = mock_library(library);
        handle_ = ::dlopen(options.nvml.c_str(), RTLD_NOW | RTLD_LOCAL);
        if (handle_ == nullptr) ADD_FAILURE() << ::dlerror();
        source_ = open_machine(options);
    }
    ~MockMachine() {
        close();
        if (handle_ != nullptr) ::dlclose(handle_);
        for (const std::string& name : names_) ::unsetenv(name.c_str());
    }
    MockMachine(const MockMachine&) = delete;
    MockMachine& operator=(const MockMachine&) = delete;

    void close() { source_.reset(); }
    [[nodiscard]] const MachineFacts& facts() const { return source_->facts(); }
    const Sample& read(std::chrono::milliseconds now) {
        source_->read(now, sample_);
        return sample_;
    }
    [[nodiscard]] unsigned calls(const char* name) const {
        return reinterpret_cast<unsigned (*)(const char*)>(::dlsym(handle_, "mockNvmlCalls"))(name);
    }
    [[nodiscard]] unsigned live_samples() const {
        return reinterpret_cast<unsigned (*)()>(::dlsym(handle_, "mockNvmlLiveSamples"))();
    }

private:
    std::vector<std::string> names_;
    void* handle_ = nullptr;
    std::unique_ptr<Source> source_;
    Sample sample_;
};

}  // namespace millrace::sense
