#include <dlfcn.h>
#include <fmt/format.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <sstream>

#include "base/processors.h"
#include "comm/group.h"
#include "comm/mpi/table.h"

namespace millrace::comm {
namespace {

namespace fs = std::filesystem;

constexpr const char* kPlugin = "libmillrace-mpi.so";
constexpr const char* kMpiRemedy =
    "start one process without mpirun, or install Debian's libopenmpi-dev and openmpi-bin, build again (cmake then makes "
    "libmillrace-mpi.so) and keep that file beside the program";

/// The collectives of the plugin. It stays loaded: MPI does not survive being unloaded.
class MpiGroup : public Group {
public:
    explicit MpiGroup(const MpiTable& table) : table_(table) {}
    MpiGroup(const MpiTable& table, std::shared_ptr<Shared> shared, int ranks)
        : Group(std::move(shared)), table_(table), ranks_(ranks) {}
    ~MpiGroup() override {
        if (ranks_ == kAllRanks && !abandoned()) table_.close();
    }

    base::Status open() {
        MpiPlace place{};
        if (const auto opened = status_of(table_.open(&place)); !opened.ok()) {
            abandon();
            return opened;
        }
        return take(place);
    }
    base::Result<std::unique_ptr<Group>> split(int colour) override {
        MpiPlace place{};
        int ranks = 0;
        MILLRACE_TRY(status_of(table_.split(ranks_, colour, &ranks, &place)));
        auto part = std::make_unique<MpiGroup>(table_, shared_, ranks);
        MILLRACE_TRY(part->take(place));
        return std::unique_ptr<Group>(std::move(part));
    }

private:
    base::Status take(const MpiPlace& place) {
        rank_ = place.rank;
        size_ = place.size;
        local_rank_ = place.local_rank;
        local_size_ = place.local_size;
        char name[256] = "";
        if (gethostname(name, sizeof name - 1) != 0) name[0] = '\0';
        MILLRACE_LET(hosts, all_texts(*this, name));
        hosts_ = std::move(hosts);
        return base::ok();
    }

    base::Status send_note(int note) override { return status_of(table_.send_note(note)); }
    base::Result<std::optional<int>> next_note() override {
        int has_come = 0, note = 0;
        MILLRACE_TRY(status_of(table_.next_note(&has_come, &note)));
        return has_come != 0 ? std::optional(note) : std::nullopt;
    }
    base::Status do_all_to_all(const void* send, void* receive, std::size_t bytes_each) override {
        return status_of(table_.all_to_all(ranks_, send, receive, bytes_each));
    }
    base::Status do_all_gather(const void* send, void* receive, std::size_t bytes_each) override {
        return status_of(table_.all_gather(ranks_, send, receive, bytes_each));
    }
    base::Status do_broadcast(void* data, std::size_t bytes, int root) override {
        return status_of(table_.broadcast(ranks_, data, bytes, root));
    }
    base::Status do_barrier() override { return status_of(table_.barrier(ranks_)); }
    base::Status do_all_reduce(float* data, std::size_t count) override {
        return status_of(table_.all_reduce(ranks_, data, count));
    }

    [[nodiscard]] base::Status status_of(const char* error) const {
        if (error == nullptr) return base::ok();
        return base::Error{error, size_ > 1 ? fmt::format("rank {} of {}", rank_, size_) : "MPI"};
    }

    const MpiTable& table_;
    const int ranks_ = kAllRanks;
};

std::string find_plugin() {
    if (const char* named = std::getenv("MILLRACE_MPI"); named != nullptr && *named != '\0') return named;
    std::error_code failed;
    const fs::path folder = fs::read_symlink("/proc/self/exe", failed).parent_path();
    for (const char* place : {"", "../lib", "../lib/millrace"}) {
        const fs::path file = folder / place / kPlugin;
        if (fs::exists(file, failed)) return file.string();
    }
    return {};
}

base::Result<const MpiTable*> load_plugin() {
    const std::string path = find_plugin();
    if (path.empty())
        return base::Error{
            fmt::format("several processes were started together, but {} is neither beside this program nor in "
                        "../lib; {}",
                        kPlugin, kMpiRemedy)};
    // Global: Open MPI loads parts of itself that look for its symbols.
    void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL);
    if (library == nullptr) return base::Error{fmt::format("cannot be loaded ({}); {}", dlerror(), kMpiRemedy), path};
    const auto entry = reinterpret_cast<decltype(&millrace_mpi_table)>(dlsym(library, kMpiEntry));
    if (entry == nullptr || entry()->version != kMpiTableVersion)
        return base::Error{"is of another version than this program; take the one that was built with it", path};
    return entry();
}

int number(const char* text) { return text == nullptr ? 0 : std::atoi(text); }

}  // namespace

Launch launch_of(const Environment& environment) {
    if (const char* size = environment("OMPI_COMM_WORLD_SIZE")) return number(size) > 1 ? Launch::kGroup : Launch::kAlone;
    // A batch script's own process has no step, and a step of one task has nobody to meet.
    const char* tasks = environment("SLURM_STEP_NUM_TASKS");
    const bool has_pmix = environment("PMIX_RANK") != nullptr;
    if (tasks == nullptr) return has_pmix ? Launch::kGroup : Launch::kAlone;
    if (number(tasks) <= 1) return Launch::kAlone;
    return has_pmix ? Launch::kGroup : Launch::kApart;
}

Launch launch() {
    return launch_of([](const char* name) { return std::getenv(name); });
}

base::Result<std::unique_ptr<Group>> open_group() {
    switch (launch()) {
        case Launch::kAlone: return single_group();
        case Launch::kApart:
            return base::Error{
                "srun started several tasks that cannot meet; start them with srun --mpi=pmix, or one task with srun -n 1"};
        case Launch::kGroup: break;
    }
    MILLRACE_LET(table, load_plugin());
    auto group = std::make_unique<MpiGroup>(*table);
    MILLRACE_TRY(group->open());
    return std::unique_ptr<Group>(std::move(group));
}

std::string device_of_rank(const char* visible, int gpus, int local_rank) {
    std::vector<std::string> devices;
    for (int gpu = 0; visible == nullptr && gpu < gpus; ++gpu) devices.push_back(std::to_string(gpu));
    std::istringstream list(visible != nullptr ? visible : "");
    for (std::string device; std::getline(list, device, ',');) devices.push_back(device);
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
    MILLRACE_LET(places, Group::all_texts(group, place));
    base::processor_sharers = static_cast<int>(std::count(places.begin(), places.end(), place));
    return base::ok();
}

}  // namespace millrace::comm
