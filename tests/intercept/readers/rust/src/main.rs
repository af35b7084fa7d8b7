// SPDX-License-Identifier: Apache-2.0

//! What the Rust binding of NVML says, as JSON: one object a card.

use nvml_wrapper::{enums::device::UsedGpuMemory, error::NvmlError, Nvml};

fn card(nvml: &Nvml, index: u32) -> Result<String, NvmlError> {
    let device = nvml.device_by_index(index)?;
    let memory = device.memory_info()?;
    let mut processes: Vec<(u32, u64)> = device
        .running_compute_processes()?
        .iter()
        .map(|p| match p.used_gpu_memory {
            UsedGpuMemory::Used(bytes) => (p.pid, bytes),
            UsedGpuMemory::Unavailable => (p.pid, 0),
        })
        .collect();
    processes.sort();
    let list: Vec<String> = processes.iter().map(|(pid, bytes)| format!("[{pid},{bytes}]")).collect();
    Ok(format!(
        "{{\"uuid\":\"{}\",\"total\":{},\"used\":{},\"free\":{},\"load\":{},\"processes\":[{}]}}",
        device.uuid()?, memory.total, memory.used, memory.free, device.utilization_rates()?.gpu, list.join(",")
    ))
}

fn main() -> Result<(), NvmlError> {
    let nvml = Nvml::builder().lib_path(std::ffi::OsStr::new("libnvidia-ml.so.1")).init()?;
    let cards: Result<Vec<String>, NvmlError> = (0..nvml.device_count()?).map(|i| card(&nvml, i)).collect();
    println!("[{}]", cards?.join(","));
    Ok(())
}
