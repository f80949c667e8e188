# A golden image of a GPU node with the project's own roles. Build time: everything that `make provision` installs.
# Boot time: user-data.yml in this directory verifies the machine that boots the image.
#
#   packer init . && packer build -var base_ami=ami-... gpu-node.pkr.hcl       (from this folder, `make help` run once)
#
# The builder needs GPUs of the fleet's kind and its kernel: the plan depends on both, and a machine without GPUs is rejected.
packer {
  required_plugins {
    amazon  = { source = "github.com/hashicorp/amazon", version = "~> 1" }
    ansible = { source = "github.com/hashicorp/ansible", version = "~> 1" }
  }
}

variable "base_ami" { type = string }
variable "instance_type" {
  type    = string
  default = "p5.48xlarge"
}

source "amazon-ebs" "gpu_node" {
  ami_name      = "gpu-node-${formatdate("YYYYMMDDhhmm", timestamp())}"
  instance_type = var.instance_type
  source_ami    = var.base_ami
  ssh_username  = "ubuntu"
}

build {
  sources = ["source.amazon-ebs.gpu_node"]

  provisioner "ansible" {
    playbook_file    = "../../playbooks/provision.yml"
    groups           = ["gpu"]
    use_proxy        = false
    command          = "../../.venv/bin/ansible-playbook"
    ansible_env_vars = ["ANSIBLE_CONFIG=../../playbooks/ansible.cfg"]
    extra_arguments  = ["--skip-tags", "verify"]
  }

  # What belongs to the builder and not to the machines that come up from its image.
  provisioner "shell" {
    inline = ["sudo rm -f /var/lib/gpucheck/report.json", "sudo cloud-init clean --logs --machine-id"]
  }
}
