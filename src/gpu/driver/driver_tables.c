/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu/driver/driver_tables.h"

#include <stddef.h>

#include "base/machine.h"
#include "model/driver_capability.h"

#define COMPUTE DRIVER_COMPUTE
#define UTILITY DRIVER_UTILITY
#define VIDEO DRIVER_VIDEO
#define SCREEN (DRIVER_GRAPHICS | DRIVER_DISPLAY)

const char *const driver_roots[] = {"", "/run/nvidia/driver", NULL};

/* "/lib" alone is where the simulated driver has them. */
const char *const driver_library_dirs[DRIVER_LIBRARY_DIRS + 1] = {
    "/usr/lib/" MULTIARCH "/nvidia/current",
    "/usr/lib/" MULTIARCH,
    "/usr/lib64",
    "/usr/lib",
    "/lib/" MULTIARCH,
    "/lib64",
    "/lib",
    "/usr/lib/" MULTIARCH "/nvidia/current/vdpau",
    "/usr/lib/" MULTIARCH "/vdpau",
    "/usr/lib64/vdpau",
    "/usr/lib/vdpau",
    "/home/kubernetes/bin/nvidia/lib64",                           /* Google's node images */
    "/usr/local/glibc/usr/lib",                                    /* Talos */
    "/usr/local/lib",                                              /* Talos, older */
    "/opt/nvidia/current/usr/lib64",                               /* Flatcar */
    "/" MACHINE "-bottlerocket-linux-gnu/sys-root/usr/lib/nvidia", /* Bottlerocket */
    "/run/opengl-driver/lib",                                      /* NixOS */
    NULL,
};

const struct driver_carrier driver_carriers[] = {
    {"libcuda.so.1", "libcuda.so", "libcuda-driver.so.1"},
    {"libnvidia-ml.so.1", "libnvidia-ml.so", "libnvidia-ml-driver.so.1"},
    {NULL, NULL, NULL},
};

const struct driver_library driver_libraries[] = {
    {"libnvidia-cfg", UTILITY, NULL},
    {"libnvidia-nscq", UTILITY, NULL},
    {"libcudadebugger", COMPUTE, NULL},
    {"libnvidia-opencl", COMPUTE, NULL},
    {"libnvidia-ptxjitcompiler", COMPUTE, NULL},
    {"libnvidia-fatbinaryloader", COMPUTE, NULL},
    {"libnvidia-compiler", COMPUTE, NULL},
    {"libnvidia-nvvm", COMPUTE, NULL},
    {"libnvidia-tileiras", COMPUTE, NULL},
    {"libnvidia-pkcs11", COMPUTE, NULL},
    {"libnvidia-pkcs11-openssl3", COMPUTE, NULL},
    {"libnvidia-gpucomp", COMPUTE | SCREEN, NULL},
    {"libnvidia-allocator", COMPUTE | SCREEN, "gbm/nvidia-drm_gbm.so"},
    {"libvdpau_nvidia", VIDEO, "vdpau/libvdpau_nvidia.so.1"},
    {"libnvidia-encode", VIDEO, NULL},
    {"libnvidia-opticalflow", VIDEO, "libnvidia-opticalflow.so"},
    {"libnvcuvid", VIDEO, NULL},
    {"libnvidia-eglcore", SCREEN, NULL},
    {"libnvidia-glcore", SCREEN, NULL},
    {"libnvidia-tls", SCREEN, NULL},
    {"libnvidia-glsi", SCREEN, NULL},
    {"libnvidia-fbc", SCREEN, NULL},
    {"libnvidia-ifr", SCREEN, NULL},
    {"libnvidia-rtcore", SCREEN, NULL},
    {"libnvoptix", SCREEN, NULL},
    {"libGLX_nvidia", SCREEN, "libGLX_indirect.so.0"},
    {"libEGL_nvidia", SCREEN, NULL},
    {"libGLESv2_nvidia", SCREEN, NULL},
    {"libGLESv1_CM_nvidia", SCREEN, NULL},
    {"libnvidia-glvkspirv", SCREEN, NULL},
    {"libnvidia-cbl", SCREEN, NULL},
    {"libnvidia-vulkan-producer", SCREEN, "libnvidia-vulkan-producer.so"},
    {"libnvidia-ngx", DRIVER_NGX, NULL},
    {NULL, 0, NULL},
};

const char *const driver_program_dirs[] = {
    "/usr/local/sbin",
    "/usr/local/bin",
    "/usr/sbin",
    "/usr/bin",
    "/sbin",
    "/bin",
    "/home/kubernetes/bin/nvidia/bin",
    "/opt/nvidia/current/usr/bin",
    "/" MACHINE "-bottlerocket-linux-gnu/sys-root/usr/bin", /* NOLINT: one text */
    "/run/current-system/sw/bin",                           /* NixOS */
    NULL,
};
static const char *const sockets[] = {"/run", "/var/run", NULL};
static const char *const modules[] = {"/usr/lib/" MULTIARCH "/nvidia/xorg", /* NOLINT: one text */
                                      "/usr/lib64/nvidia/xorg",
                                      "/usr/lib/nvidia/xorg",
                                      "/usr/lib/xorg/modules/drivers",
                                      "/usr/lib/xorg/modules/extensions",
                                      "/usr/lib/xorg/modules/updates/drivers",
                                      "/usr/lib/xorg/modules/updates/extensions",
                                      "/usr/lib64/xorg/modules/drivers",
                                      "/usr/lib64/xorg/modules/extensions",
                                      "/usr/lib64/xorg/modules/updates/drivers",
                                      "/usr/lib64/xorg/modules/updates/extensions",
                                      NULL};

/* nvidia-smi is also where images of the first NVIDIA runtime had it in their PATH. */
const struct driver_place driver_places[] = {
    {"nvidia-smi", driver_program_dirs, UTILITY, false, "/usr/local/nvidia/bin/nvidia-smi"},
    {"nvidia-debugdump", driver_program_dirs, UTILITY, false, NULL},
    {"nvidia-persistenced", driver_program_dirs, UTILITY, false, NULL},
    {"nv-fabricmanager", driver_program_dirs, UTILITY, false, NULL},
    {"nvidia-imex", driver_program_dirs, UTILITY, false, NULL},
    {"nvidia-imex-ctl", driver_program_dirs, UTILITY, false, NULL},
    {"nvidia-cuda-mps-control", driver_program_dirs, COMPUTE, false, NULL},
    {"nvidia-cuda-mps-server", driver_program_dirs, COMPUTE, false, NULL},
    {"nvidia-xconfig", driver_program_dirs, SCREEN, false, NULL},
    {"nvidia-persistenced/socket", sockets, UTILITY, false, NULL},
    {"nvidia-fabricmanager/socket", sockets, UTILITY, false, NULL},
    {"nvidia_drv.so", modules, SCREEN, false, NULL},
    {"libglxserver_nvidia.so", modules, SCREEN, false, NULL},
    {"libnvidia-nvvm70.so.4", driver_library_dirs, COMPUTE, true, NULL},
    {"libnvidia-api.so.1", driver_library_dirs, SCREEN, true, NULL},
    {"libnvidia-egl-gbm.so.1", driver_library_dirs, SCREEN, true, NULL},
    {"libnvidia-egl-wayland.so.1", driver_library_dirs, SCREEN, true, NULL},
    {"libnvidia-egl-wayland2.so.1", driver_library_dirs, SCREEN, true, NULL},
    {"libnvidia-egl-xcb.so.1", driver_library_dirs, SCREEN, true, NULL},
    {"libnvidia-egl-xlib.so.1", driver_library_dirs, SCREEN, true, NULL},
    {NULL, NULL, 0, false, NULL},
};

/* "" is the driver's root itself, where Google's node images have Vulkan's. */
const char *const driver_config_dirs[] = {"/etc", "/usr/local/share", "/usr/share", "", NULL};

const struct driver_config driver_configs[] = {
    {"glvnd/egl_vendor.d/10_nvidia.json", "/usr/share", SCREEN},
    {"egl/egl_external_platform.d/15_nvidia_gbm.json", "/usr/share", SCREEN},
    {"egl/egl_external_platform.d/10_nvidia_wayland.json", "/usr/share", SCREEN},
    {"egl/egl_external_platform.d/09_nvidia_wayland2.json", "/usr/share", SCREEN},
    {"egl/egl_external_platform.d/20_nvidia_xcb.json", "/usr/share", SCREEN},
    {"egl/egl_external_platform.d/20_nvidia_xlib.json", "/usr/share", SCREEN},
    {"nvidia/nvoptix.bin", "/usr/share", SCREEN},
    {"X11/xorg.conf.d/10-nvidia.conf", "/usr/share", SCREEN},
    {"X11/xorg.conf.d/nvidia-drm-outputclass.conf", "/usr/share", SCREEN},
    {"vulkan/icd.d/nvidia_icd.json", "/etc", SCREEN},
    {"vulkan/icd.d/nvidia_icd." MACHINE ".json", "/etc", SCREEN},
    {"vulkan/icd.d/nvidia_layers.json", "/etc", SCREEN},
    {"vulkan/implicit_layer.d/nvidia_layers.json", "/etc", SCREEN},
    {"OpenCL/vendors/nvidia.icd", "/etc", COMPUTE},
    {NULL, NULL, 0},
};
