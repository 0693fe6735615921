#include "comm/group.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <sched.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>

#include "base/processors.h"
#include "base/split.h"

namespace millrace::comm {
namespace {

namespace fs = std::filesystem;

constexpr const char* kPlugin = "libmillrace-mpi.so";
constexpr const char* kMpiRemedy =
    "start one process without mpirun, or install Debian's libopenmpi-dev and openmpi-bin, build again (cmake then makes "
    "libmillrace-mpi.so) and keep that file beside the program";

/// MILLRACE_MPI, or what lies where builds and packages put it. It stays loaded: MPI does not survive being unloaded.
base::Result<const MpiTable*> load_plugin() {
    const char* named = std::getenv("MILLRACE_MPI");
    std::string path = named != nullptr ? named : "";
    std::error_code failed;
    const fs::path folder = fs::read_symlink("/proc/self/exe", failed).parent_path();
    for (const char* place : {"", "../lib", "../lib/millrace"})
        if (const fs::path file = folder / place / kPlugin; path.empty() && fs::exists(file, failed)) path = file.string();
    if (path.empty())
        return base::Error{
            fmt::format("several processes were started together, but {} is neither beside this program nor in "
                        "../lib; {}",
                        kPlugin, kMpiRemedy)};
    // Global: Open MPI loads parts of itself that look for its symbols.
    void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL);
    if (library == nullptr) return base::Error{fmt::format("cannot be loaded ({}); {}", dlerror(), kMpiRemedy), path};
    const auto entry = reinterpret_cast<decltype(&millrace_mpi_table_3)>(dlsym(library, kMpiEntry));
    if (entry == nullptr)
        return base::Error{"is of another version than this program; take the one that was built with it", path};
    return entry();
}

std::string host_name() {
    char name[256] = "";
    return gethostname(name, sizeof name - 1) == 0 ? name : "localhost";
}

}  // namespace

Group::Group() : hosts_{host_name()} {}

base::Result<std::unique_ptr<Group>> Group::open(const MpiTable& table) {
    MpiPlace place{};
    if (const char* error = table.open(&place)) return base::Error{error, "MPI"};
    auto group = std::make_unique<Group>(&table, place, std::vector<std::string>());
    MILLRACE_SET(group->hosts_, group->all_lists(host_name()));
    return group;
}

Group::~Group() {
    if (table_ != nullptr && ranks_ == kAllRanks && !abandoned()) table_->close();
}

template <class Call, class... Arguments>
base::Status Group::collective(Call MpiTable::*call, Arguments... arguments) {
    if (size() == 1) return base::ok();
    const UnderWay::Scope waits(shared_->waits);
    ++shared_->messages;
    const char* error = (table_->*call)(ranks_, arguments...);
    if (error == nullptr) return base::ok();
    abandon();
    return base::Error{error, fmt::format("rank {} of {}", rank(), size())};
}

base::Result<std::unique_ptr<Group>> Group::split(int colour) {
    MpiPlace place = place_;
    int ranks = ranks_;
    MILLRACE_TRY(collective(&MpiTable::split, colour, &ranks, &place));
    auto part = std::make_unique<Group>(size() == 1 ? nullptr : table_, place, std::vector<std::string>());
    part->ranks_ = ranks;
    part->shared_ = shared_;
    MILLRACE_SET(part->hosts_, part->all_lists(host_name()));
    return part;
}

std::string Group::name_of(int rank) const { return fmt::format("rank {} on {}", rank, hosts_[static_cast<std::size_t>(rank)]); }

base::Status Group::all_to_all(const void* send, void* receive, std::size_t bytes_each) {
    if (size() == 1 && send != receive && bytes_each > 0) std::memcpy(receive, send, bytes_each);
    return collective(&MpiTable::all_to_all, send, receive, bytes_each);
}

base::Status Group::all_gather(const void* send, void* receive, std::size_t bytes_each) {
    if (size() == 1) return all_to_all(send, receive, bytes_each);
    return collective(&MpiTable::all_gather, send, receive, bytes_each);
}

base::Status Group::barrier() { return collective(&MpiTable::barrier); }

base::Status Group::all_reduce(float* data, std::size_t count) { return collective(&MpiTable::all_reduce, data, count); }

base::Status Group::agree_on(const base::Error* own) {
    MILLRACE_LET(texts, all_lists(own == nullptr ? std::string() : fmt::format("{} {}", own->exit_status, own->text())));
    const auto first = std::ranges::find_if(texts, [](const std::string& text) { return !text.empty(); });
    refused_ = first != texts.end();
    if (!refused_) return base::ok();
    if (size() == 1) return *own;
    base::Error error{"", "", std::atoi(first->c_str())};
    if (rank() == 0) error.message = first->substr(first->find(' ') + 1);
    if (rank() == 0 && first != texts.begin()) error.place = name_of(static_cast<int>(first - texts.begin()));
    return error;
}

Launch launch(const Environment& environment) {
    if (const char* size = environment("OMPI_COMM_WORLD_SIZE")) return std::atoi(size) > 1 ? Launch::kGroup : Launch::kAlone;
    // A batch script's own process has no step, and a step of one task has no other rank.
    const char* tasks = environment("SLURM_STEP_NUM_TASKS");
    const bool has_pmix = environment("PMIX_RANK") != nullptr;
    if (tasks == nullptr) return has_pmix ? Launch::kGroup : Launch::kAlone;
    if (std::atoi(tasks) <= 1) return Launch::kAlone;
    return has_pmix ? Launch::kGroup : Launch::kApart;
}

base::Result<std::unique_ptr<Group>> open_group() {
    switch (launch()) {
        case Launch::kAlone: return std::make_unique<Group>();
        case Launch::kApart:
            return base::Error{
                "srun started several tasks that cannot meet; start them with srun --mpi=pmix, or one task with srun -n 1"};
        case Launch::kGroup: break;
    }
    MILLRACE_LET(table, load_plugin());
    return Group::open(*table);
}

std::string device_of_rank(const char* visible, int gpus, int local_rank) {
    std::vector<std::string> devices;
    if (visible != nullptr) devices = base::split(visible, ',');
    for (int gpu = 0; visible == nullptr && gpu < gpus; ++gpu) devices.push_back(std::to_string(gpu));
    return devices.empty() ? std::string() : devices[static_cast<std::size_t>(local_rank) % devices.size()];
}

base::Status share_host(Group& group) {
    if (group.size() == 1) return base::ok();
    int gpus = 0;  // by the driver's files: asking CUDA would fix what it sees
    while (fs::exists(fmt::format("/dev/nvidia{}", gpus))) ++gpus;
    const std::string device = device_of_rank(std::getenv("CUDA_VISIBLE_DEVICES"), gpus, group.local_rank());
    if (!device.empty()) setenv("CUDA_VISIBLE_DEVICES", device.c_str(), 1);

    cpu_set_t own{};
    (void)sched_getaffinity(0, sizeof own, &own);
    const std::string place =
        group.hosts()[static_cast<std::size_t>(group.rank())] + std::string(reinterpret_cast<const char*>(&own), sizeof own);
    MILLRACE_LET(places, group.all_lists(place));
    base::processor_sharers = static_cast<int>(std::count(places.begin(), places.end(), place));
    return base::ok();
}

}  // namespace millrace::comm
